#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client of server.py, in a process of its own: chat requests in an open loop, and a greedy batch job.

    python client.py http://127.0.0.1:8000 --seconds 4 --rate 30 --documents 4

Chat requests are sent as a Poisson process, at times that do not depend on answers (open loop), and timed from when
they were due, so queueing counts. The batch job keeps `documents` requests in flight and sends the next document as
soon as it has an answer, as long as chat requests come. Connections are kept open. Prints JSON: for each model a list
of [seconds from due to answered, seconds of it in the server].
"""

import argparse
import asyncio
import json
import random
import time

import httpx


async def load(url, *, rate, documents, seconds, query, seed):
    answers = {"chat": [], "batch": []}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:

        async def ask(name, due):
            response = await client.post(f"/v1/models/{name}/infer", params=query)
            response.raise_for_status()
            return time.perf_counter() - due, response.json()["seconds"]

        # Opens the connections and loads the code before anything is timed.
        now = time.perf_counter()
        await asyncio.gather(*(ask(name, now) for name in ["chat"] * 4 + ["batch"] * documents))

        begin = time.perf_counter()
        end = begin + seconds

        async def chat(due):
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            answers["chat"].append(await ask("chat", due))

        async def batch():
            while (now := time.perf_counter()) < end:
                answers["batch"].append(await ask("batch", now))

        rng, due, requests = random.Random(seed), begin, []
        while (due := due + rng.expovariate(rate)) < end:
            requests.append(chat(due))
        await asyncio.gather(*requests, *(batch() for _ in range(documents)))
    return answers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=4, help="of load")
    parser.add_argument("--rate", type=float, default=30, help="chat requests a second")
    parser.add_argument("--documents", type=int, default=4, help="of the batch job at a time")
    parser.add_argument("--shared", default="true", choices=["true", "false"], help="with gpushare, or past it")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(load(options.url, rate=options.rate, documents=options.documents, seed=options.seed,
                                      seconds=options.seconds, query={"shared": options.shared}))))


if __name__ == "__main__":
    main()
