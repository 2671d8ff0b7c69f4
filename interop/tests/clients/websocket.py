"""A client of `websocket`, with the package `websockets` (10.4 and newer)."""

import asyncio
import sys

import websockets


async def echo(uri):
    async with websockets.connect(uri, max_size=None) as socket:
        for message in ["hello", "", "grüß dich, 世界", b"\0\1\2", bytes(range(256)) * 8192]:
            await socket.send(message)
            assert await socket.recv() == message
        # In fragments, which come back as one.
        await socket.send(["one, ", "two, ", "three"])
        assert await socket.recv() == "one, two, three"
        await (await socket.ping(b"are you there"))

    async def one(number):
        async with websockets.connect(uri) as socket:
            for turn in range(20):
                message = f"{number}: {turn} " + "x" * (number * 37)
                await socket.send(message)
                assert await socket.recv() == message
        return socket

    sockets = await asyncio.gather(*map(one, range(50)))
    assert all(socket.close_code == 1000 for socket in sockets)
    print("well")


async def silent(uri):
    async with websockets.connect(uri) as socket:
        # Five times as long as the server waits. Its questions are answered meanwhile.
        await asyncio.sleep(2.5)
        await socket.send("still here")
        assert await socket.recv() == "still here"
    print("well")


async def stop(uri):
    async with websockets.connect(uri) as socket:
        try:
            await socket.recv()
        except websockets.ConnectionClosed as closed:
            print(closed.rcvd.code)


ways = {"echo": echo, "silent": silent, "stop": stop}
asyncio.run(asyncio.wait_for(ways[sys.argv[2]](sys.argv[1]), 50))
