"""A producer for the gateway of feeds, with nothing but the standard library.

    producer.py FEED LINE... --node http://127.0.0.1:9478 [--node ...]

Appends each LINE as a batch of its own and seals the stream. A batch is
repeated with its id until a node has answered for it; the stream is taken over
when its holder is gone. So each line is in the feed once, whatever happens.
"""

import argparse
import http.client
import itertools
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


class Refused(Exception):
    """A problem that repeating does not solve."""


class Producer:
    def __init__(self, feed, nodes, token=None):
        self.feed, self.nodes, self.token = feed, itertools.cycle(nodes), token
        self.node = next(self.nodes)
        self.session = None

    def ask(self, path, body=b"", kind="application/json", **query):
        """One request: its answer, or a problem as (status, name, problem)."""
        url = f"{self.node}/v1/feeds/{self.feed}/{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, data=body, method="POST", headers={"Content-Type": kind})
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer), None
        except urllib.error.HTTPError as e:
            problem = json.load(e)
            return None, (problem["type"].rpartition("/")[2], problem)
        except (OSError, http.client.HTTPException) as e:
            self.node = next(self.nodes)  # another one knows, or finds out
            return None, ("no-answer", {"detail": str(e)})

    def open(self):
        """A new stream. Where the answer is lost, it may be open: resume it."""
        answer, problem = self.ask("open")
        if problem and problem[0] in ("no-answer", "unknown-outcome", "unavailable"):
            return self.resume()
        self.session = self.accept(answer, problem)

    def resume(self):
        self.session = self.until_answered("resume")

    def accept(self, answer, problem):
        if problem:
            raise Refused(problem[1]["detail"])
        return answer

    def until_answered(self, path, *args, again=(), resumes=(), **query):
        while True:
            if self.session:
                query["fencingToken"] = self.session["fencingToken"]
            answer, problem = self.ask(path, *args, **({} if path == "resume" else query))
            name = problem and problem[0]
            if name in resumes:
                self.resume()
            elif name not in ("no-answer", "unavailable", "unknown-outcome", "holder-unavailable", *again):
                return self.accept(answer, problem)
            time.sleep(0.1)

    def stream(self, operation):
        return f"streams/{self.session['stream']}/{operation}"

    def append(self, batch_id, payload):
        """Where the batch is; the next one follows it."""
        at = self.until_answered(
            self.stream("append"), payload, "application/octet-stream", resumes=("holder-unavailable", "unknown-outcome", "fenced"),
            matchSequence=self.session["lastSequence"], batchId=batch_id)
        self.session["lastSequence"] = at["last"]
        return at

    def seal(self, message):
        body = json.dumps({"message": message}).encode()
        return self.until_answered(self.stream("seal"), body, again=("not-committed",), resumes=("holder-unavailable", "fenced"))


def main():
    args = argparse.ArgumentParser()
    args.add_argument("feed")
    args.add_argument("lines", nargs="+")
    args.add_argument("--node", action="append", required=True)
    args.add_argument("--token")
    given = args.parse_args()
    producer = Producer(given.feed, given.node, given.token)
    producer.open()
    for n, line in enumerate(given.lines):
        print(json.dumps(producer.append(f"line-{n}", line.encode())), flush=True)
    print(json.dumps(producer.seal("lines of producer.py")))


if __name__ == "__main__":
    try:
        main()
    except Refused as e:
        sys.exit(f"producer.py: {e}")
