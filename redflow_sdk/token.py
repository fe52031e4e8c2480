"""Completion tokens: what a handler gives to people and webhooks, and waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from redflow_sdk._step_calls import StepRunner, WaitCall

OutputT = TypeVar("OutputT")


class _Completable(str, Generic[OutputT]):
    """An opaque string: whoever has it can complete or fail the step once, by any client."""

    __slots__ = ("_call", "_runner")
    _call: WaitCall
    _runner: StepRunner

    @classmethod
    def of(cls, text: str, call: WaitCall, runner: StepRunner) -> Self:
        """A token that is completed by `call`; for the SDK itself."""
        token = cls(text)
        token._call, token._runner = call, runner
        return token


class Token(_Completable[OutputT]):
    """An opaque string: whoever has it can complete or fail the step once, by `Client.complete_token` of any client, or
    `redflow token complete`.

        token = await ctx.step.token("approve", bool, timeout=86400)
        await ctx.step.run("ask", send_mail, token)
        approved = await token.result()
    """

    __slots__ = ()

    async def result(self) -> OutputT:
        """What it is completed with, of the `output_type` of its step.

        The run takes up no slot of its worker meanwhile. Raises TokenFailedError when somebody has failed it, and
        TimeoutError when nobody has completed it in time.
        """
        value: OutputT = await self._runner.completed(self._call)
        return value


class BlockingToken(_Completable[OutputT]):
    """The token of a handler in a thread: like `Token`, but that `result` blocks."""

    __slots__ = ()

    def result(self) -> OutputT:
        """What it is completed with, like `Token.result`."""
        value: OutputT = self._runner.on_loop(self._runner.completed(self._call))
        return value
