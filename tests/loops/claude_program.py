"""A stand-in for the command line `claude` in its stream of JSON: it says what it was given.

`make test-agents` tries the real one. Sessions are files in the folder `AGENT_SESSIONS`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

SESSIONS = Path(os.environ["AGENT_SESSIONS"])


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def hear() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    heard: dict[str, Any] = json.loads(line)
    return heard


def text(content: str) -> None:
    say(type="stream_event", event={"type": "message_start", "message": {"id": content}})
    delta = {"type": "text_delta", "text": content}
    say(type="stream_event", event={"type": "content_block_delta", "delta": delta})


def ask(prompt: str) -> None:
    """Asks to run a tool, and tells what it was allowed."""
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": prompt}}
    say(type="assistant", message={"content": [call]})
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": call["input"]}
    request["tool_use_id"] = "t1"
    say(type="control_request", request_id="r1", request=request)
    decision = hear()["response"]["response"]
    allowed = decision["behavior"] == "allow"
    told = decision["updatedInput"]["command"] if allowed else decision["message"]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": told, "is_error": not allowed}
    say(type="user", message={"content": [result]}, tool_use_result={"stdout": told})


def agent_asks(prompt: str) -> str:
    """An agent that it started asks to run a tool; what it was allowed."""
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": prompt}}
    request |= {"tool_use_id": "sub1", "agent_id": "a1", "description": "A test"}
    say(type="control_request", request_id="r1", request=request)
    return str(hear()["response"]["response"]["behavior"])


def start_agent() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Agent", "input": {"prompt": "x"}}
    say(type="assistant", message={"content": [call]})


def end_agent(told: str) -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": told}
    say(type="user", message={"content": [result]})


def in_background(*tasks: str) -> None:
    listed = [{"task_id": task, "task_type": "local_agent"} for task in tasks]
    shell = {"task_id": "server", "task_type": "local_bash"}
    say(type="system", subtype="background_tasks_changed", tasks=[*listed, shell])


def delegate(how: str) -> None:
    """Starts an agent, and waits for it, or ends its turn meanwhile and goes on later, or not."""
    start_agent()
    if how == "and change its mind":
        request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}}
        request |= {"tool_use_id": "sub1", "agent_id": "a1"}
        say(type="control_request", request_id="r1", request=request)
        while not (SESSIONS / "go on").exists():
            time.sleep(0.01)
        say(type="control_cancel_request", request_id="r1")
        end_agent("another way")
        return
    if how == "and wait":
        end_agent(agent_asks("ls"))
        return
    in_background("a1")
    end_agent("launched")
    text("Delegated.")
    say(type="result", subtype="success", is_error=False)
    allowed = agent_asks("ls")
    in_background()
    if how == "and go on":
        text(f"It was {allowed}.")
        say(type="result", subtype="success", is_error=False)


def main() -> None:
    option, session_id = sys.argv[-2:]
    file = SESSIONS / session_id
    if option == "--resume" and not file.exists():
        sys.exit("No conversation found")
    with file.open("a") as session:
        while True:
            heard = hear()
            if heard["type"] == "control_request":
                reply = {"subtype": "success", "request_id": heard["request_id"], "response": {}}
                say(type="control_response", response=reply)
                if heard["request"]["subtype"] == "interrupt":
                    say(type="result", subtype="error_during_execution", is_error=True)
                continue
            prompt = heard["message"]["content"][-1]["text"]
            session.writelines(block["text"] + "\n" for block in heard["message"]["content"])
            session.flush()
            if prompt == "crash":
                sys.exit("no more")
            if prompt == "wait":
                text("Waiting.")
                continue
            if prompt == "ask oddly":
                ask("half \ud83d")
            elif prompt.startswith("ask "):
                ask(prompt[4:])
            if prompt.startswith("delegate "):
                delegate(prompt[9:])
                if prompt not in ("delegate and wait", "delegate and change its mind"):
                    continue
            if prompt == "odd":
                sys.stdout.write("[" * 100_000 + "\n")
                text("half a character: \ud83d")
            text(file.read_text() if prompt == "told" else "Done.")
            bad = prompt == "fail"
            say(type="result", subtype="success", is_error=bad, result="too much" if bad else "")


if __name__ == "__main__":
    main()
