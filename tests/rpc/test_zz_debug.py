from __future__ import annotations
import asyncio, time
from tests.rpc.test_session_abuse import *
async def test_dbg(calls_to, gateway, calls, open_worker):
    ch = grpc.aio.insecure_channel(f"127.0.0.1:{gateway.port}", options=(("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16384), ("grpc.use_local_subchannel_pool",1)))
    call = stubs.WorkerServiceStub(ch).Session()
    await call.write(pb.SessionRequest(open=an_open("w")))
    await call.read()
    [s] = gateway._sessions._open.values()
    t0=time.time()
    n=0
    message = pb.SessionRequest(step_reports=[a_step("no token", "x" * 200) for _ in range(500)])
    async def fl():
        nonlocal n
        try:
            while True:
                await call.write(message); n+=1
        except BaseException as e: print("flood end", repr(e)[:300])
    f=asyncio.create_task(fl())
    for k in range(25):
        await asyncio.sleep(0.2)
        print(round(time.time()-t0,2), n, s.outbox.queued, s.is_closed, s.outbox._end, open_streams(), f.done(), time.monotonic()-s.last_heard)
    print(gateway.telemetry.counters)
