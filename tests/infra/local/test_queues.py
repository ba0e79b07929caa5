"""The run-slot gate and the line to the zygote, by themselves."""

from __future__ import annotations

import asyncio
import os
import socket

from gradmux.infra.local.gate import Gate
from gradmux.infra.local.orders import Orders
from gradmux.infra.local.wire import NOTICE, ORDER

KILLS = 2000


def test_the_gate_lets_as_many_in_as_it_has_slots_in_the_order_they_came() -> None:
    async def scenario() -> tuple[list[int], int]:
        gate, entered, inside, most = Gate(2), [], 0, 0

        async def visit(number: int) -> None:
            nonlocal inside, most
            await gate.acquire()
            entered.append(number)
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
            gate.release()

        await asyncio.gather(*(visit(number) for number in range(20)))
        return entered, most

    assert asyncio.run(scenario()) == (list(range(20)), 2)


def test_a_waiter_that_gave_up_does_not_take_the_slot_with_it() -> None:
    async def scenario() -> None:
        gate = Gate(1)
        await gate.acquire()
        gone, next_one = asyncio.create_task(gate.acquire()), asyncio.create_task(gate.acquire())
        await asyncio.sleep(0)
        gone.cancel()
        gate.release()
        await asyncio.wait_for(next_one, 1)

    asyncio.run(scenario())


def test_orders_wait_for_a_busy_zygote_and_keep_their_order() -> None:
    async def scenario() -> list[tuple[int, int]]:
        ours, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, zygote:
            orders = Orders(ours, lambda number, status: None)
            for number in range(KILLS):  # far more than the socket holds
                orders.kill(number, number % 32)
            received = []
            while len(received) < KILLS:
                await asyncio.sleep(0)
                order, number, signal_number = ORDER.unpack(zygote.recv(ORDER.size))
                assert order == b"K"
                received.append((number, signal_number))
            return received

    assert asyncio.run(scenario()) == [(number, number % 32) for number in range(KILLS)]


def test_a_start_hands_over_both_descriptors_and_brings_the_pid_then_the_end() -> None:
    async def scenario() -> None:
        ours, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ended: list[tuple[int, int]] = []
        with ours, zygote:
            orders = Orders(ours, lambda number, status: ended.append((number, status)))
            near, far = socket.socketpair()
            log = os.memfd_create("log")
            started = asyncio.create_task(orders.start(7, far, log))
            await asyncio.sleep(0)
            order, descriptors, _, _ = socket.recv_fds(zygote, ORDER.size, 2)
            assert ORDER.unpack(order) == (b"S", 7, 0)
            with socket.socket(fileno=descriptors[0]) as worker, near:
                worker.send(b"from the worker")
                assert near.recv(100) == b"from the worker"
            os.write(descriptors[1], b"a line")
            assert os.pread(log, 100, 0) == b"a line"
            assert far.fileno() == -1  # ours is closed: the worker's end is the worker's alone
            zygote.send(NOTICE.pack(b"P", 7, 4321))
            zygote.send(NOTICE.pack(b"X", 7, 9))
            assert await started == 4321
            assert ended == [(7, 9)]
            os.close(descriptors[1])
            os.close(log)

    asyncio.run(scenario())
