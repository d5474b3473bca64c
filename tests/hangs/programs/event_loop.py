"""A coroutine waits for an event that nobody sets."""

import asyncio

from training import train


async def rollout():
    await asyncio.Event().wait()


async def rollouts():
    await asyncio.gather(rollout(), rollout())


train(lambda: asyncio.run(rollouts()))  # stands
