"""Workflows on the page: started from YAML, seen as graphs, and steered step by step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, expect

from perdure.testing import Call, Fail, Hang, Say, write_script
from tests.page.test_quality import AXE, PHONE, WIDE, check_with_axe
from tests.page.visitor import WAIT_MS, Visitor
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block

PLACE = "#/workflows"
RETRY = {"attempts": 2, "wait_s": 0, "prompt": "{{ prompt }}"}


def step(name: str, *script: Any, **fields: Any) -> dict[str, Any]:
    """A step whose prompt is a script."""
    return {"id": name, "prompt": write_script(*(script or (Say(f"{name} is done"),))), **fields}


def start(api: httpx.Client, workflow_id: str, *steps: dict[str, Any], **fields: Any) -> None:
    workflow = {"name": f"the {workflow_id}", "retry": RETRY, "steps": steps, **fields}
    body = {"workflow": workflow, "workflow_id": workflow_id}
    started = api.post("/v1/workflows", json=body)
    assert started.status_code == 201, started.text


def until(api: httpx.Client, name: str, status: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        look: dict[str, Any] = api.get(f"/v1/workflows/{name}").json()
        if look["status"] == status:
            return look
        assert time.monotonic() < deadline, f"{name} is never {status}: {look}"
        time.sleep(0.05)


def box(visitor: Visitor, name: str) -> Locator:
    return visitor.page.locator(f"[data-testid=graph-step][data-step={name}]")


def begin(visitor: Visitor, yaml: str) -> None:
    visitor.see("workflow-start").click()
    visitor.see("workflow-yaml").fill(yaml)


YAML = """name: release
inputs:
  version: {}
  channel: {default: stable}
steps:
  - id: build
    prompt: build {{ inputs.version }}
  - id: notes
    after: []
    prompt: notes for {{ inputs.channel }}
  - id: publish
    after: [build, notes]
    prompt: publish {{ steps.build.output }}
    approve: true
"""


def test_a_workflow_is_checked_while_it_is_written_and_started(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    visitor = visit(PLACE)
    expect(visitor.see("nothing")).to_be_visible(timeout=WAIT_MS)
    begin(visitor, YAML.replace("inputs.version }}", "inputs.verison }}") + "    retires: 3\n")
    faults = visitor.see("workflow-faults")
    expect(faults).to_contain_text("retires", timeout=WAIT_MS)
    expect(visitor.see("workflow-confirm")).to_be_disabled()
    visitor.see("workflow-yaml").fill(YAML.replace("inputs.version }}", "inputs.verison }}"))
    expect(faults.locator("li")).to_have_count(2, timeout=WAIT_MS)
    expect(faults).to_contain_text("Line 7")
    visitor.shoot("workflow-faults")
    faults.get_by_text("Line 7").click()
    chosen = visitor.see("workflow-yaml").evaluate(
        "field => field.value.slice(field.selectionStart, field.selectionEnd)"
    )
    assert chosen == "    prompt: build {{ inputs.verison }}"
    visitor.see("workflow-yaml").fill(YAML)
    expect(faults.locator("li")).to_have_count(1, timeout=WAIT_MS)
    visitor.see("input-version").fill("0.1.0")
    plan = visitor.see("workflow-plan")
    expect(plan).to_contain_text("3 steps", timeout=WAIT_MS)
    expect(visitor.see("input-channel")).to_have_attribute("placeholder", "stable")
    assert api.get("/v1/workflows").json()["workflows"] == []
    visitor.page.reload()  # what was written is kept
    visitor.see("workflow-start").click()
    expect(visitor.see("input-version")).to_have_value("0.1.0")
    visitor.see("workflow-confirm").click()
    expect(visitor.see("workflow-status")).to_have_attribute(
        "data-status", "waiting", timeout=WAIT_MS
    )
    (brief,) = api.get("/v1/workflows").json()["workflows"]
    look = api.get(f"/v1/workflows/{brief['workflow_id']}").json()
    assert look["inputs"] == {"version": "0.1.0", "channel": "stable"}
    assert look["source"] == YAML
    visitor.page.goto(f"{visitor.server.base}/{PLACE}")
    expect(visitor.see("workflow")).to_contain_text("2 of 3 steps", timeout=WAIT_MS)
    visitor.see("workflow-start").click()
    expect(visitor.see("workflow-yaml")).to_have_value("")


def test_steps_are_a_graph_and_lead_into_their_transcripts(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    call = Call("read_file", {"path": "a.py"}, output=["x = 1"])
    start(
        api,
        "w",
        step("plan"),
        step("build", Say("I look.", calls=[call]), Say("It is built."), title="Build it"),
        step("docs", after=["plan"]),
        step("end", after=["build", "docs"]),
    )
    until(api, "w", "completed")
    visitor = visit(f"{PLACE}/w")
    expect(visitor.see("graph").locator("li")).to_have_count(4, timeout=WAIT_MS)
    tops = {name: box(visitor, name).bounding_box() for name in ("plan", "build", "docs", "end")}
    assert all(tops.values())
    heights = {name: round(each["y"]) for name, each in tops.items() if each is not None}
    assert heights["plan"] < heights["build"] == heights["docs"] < heights["end"]
    # It is read as a list: each step with how it stands and what it waits for.
    expect(box(visitor, "end")).to_have_accessible_name("end completed (after Build it, docs)")
    box(visitor, "build").click()
    detail = visitor.see("step")
    expect(detail).to_have_attribute("data-step", "build")
    expect(detail).to_contain_text("1 tool call")
    expect(detail).to_contain_text("read_file")
    expect(visitor.see("attempt-output")).to_have_text("It is built.")
    visitor.see("attempt-link").click()
    expect(visitor.see("message").last).to_contain_text("It is built.", timeout=WAIT_MS)
    visitor.page.go_back()
    expect(detail).to_have_attribute("data-step", "build", timeout=WAIT_MS)


def test_a_failed_step_is_tried_again_then_skipped_for_a_reason(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    start(api, "w", step("one", Fail("out of paper"), compensate="undo"), step("two"), step("undo"))
    until(api, "w", "failed")
    visitor = visit(f"{PLACE}/w")
    detail = visitor.see("step")
    expect(detail).to_have_attribute("data-step", "one", timeout=WAIT_MS)  # the one to look at
    expect(visitor.see("attempt")).to_have_count(2)
    expect(visitor.see("not-a-rollback")).to_contain_text("A retry is not a rollback")
    expect(visitor.see("workflow-why")).to_contain_text("out of paper")
    expect(box(visitor, "undo")).to_contain_text("completed")
    visitor.see("step-retry").click()
    expect(visitor.see("attempt")).to_have_count(4, timeout=WAIT_MS)
    expect(visitor.see("workflow-status")).to_have_text("failed", timeout=WAIT_MS)
    visitor.see("step-skip").click()
    visitor.see("reason-confirm").click()
    expect(visitor.see("reason-dialog")).to_be_visible()  # it has to have one
    visitor.see("reason").fill("we have enough paper")
    visitor.see("reason-confirm").click()
    expect(visitor.see("workflow-status")).to_have_text("completed", timeout=WAIT_MS)
    box(visitor, "one").click()
    expect(detail).to_contain_text("we have enough paper", timeout=WAIT_MS)
    look = until(api, "w", "completed")
    assert look["steps"][0]["answers"][-1]["reason"] == "we have enough paper"


def test_a_person_lets_a_step_start_or_refuses(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    start(api, "yes", step("one", approve=True))
    start(api, "no", step("one", approve=True))
    visitor = visit(f"{PLACE}/yes")
    expect(visitor.see("workflow-status")).to_have_text("needs approval", timeout=WAIT_MS)
    visitor.see("step-approve").click()
    expect(visitor.see("workflow-status")).to_have_text("completed", timeout=WAIT_MS)
    expect(visitor.see("step")).to_contain_text("Approved")
    visitor.page.goto(f"{visitor.server.base}/{PLACE}/no")
    visitor.see("step-reject").click()
    visitor.see("reason").fill("not on a Friday")
    visitor.see("reason-confirm").click()
    expect(visitor.see("workflow-status")).to_have_text("failed", timeout=WAIT_MS)
    expect(visitor.see("step")).to_contain_text("not on a Friday")
    assert until(api, "no", "failed")["steps"][0]["reason"] == "rejected"


def test_a_workflow_that_waits_is_listed_so_and_one_that_was_cancelled_goes_on(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    start(api, "w", step("one", compensate="undo"), step("two", approve=True), step("undo"))
    until(api, "w", "waiting")
    visitor = visit(PLACE)
    row = visitor.page.locator("[data-testid=workflow]")
    expect(row).to_contain_text("needs approval", timeout=WAIT_MS)
    expect(row).to_contain_text("1 of 2 steps")
    api.post("/v1/workflows/w/cancel", json={}).raise_for_status()
    expect(row).to_have_attribute("data-status", "cancelled", timeout=WAIT_MS)
    visitor.page.goto(f"{visitor.server.base}/{PLACE}/w/two")
    expect(visitor.page.locator("#steps")).to_have_text("Steps 1 of 2 done", timeout=WAIT_MS)
    expect(visitor.see("step-retry")).to_have_text("Go on here")
    visitor.see("step-retry").click()
    expect(visitor.see("workflow-status")).to_have_text("needs approval", timeout=WAIT_MS)


def test_on_a_phone_places_keep_their_names_and_their_tools_stand_beside_them(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    start(api, "w", step("one"), step("two", Fail("no luck")), step("three"))
    until(api, "w", "failed")
    visitor = visit("", viewport=PHONE)
    for place, name in (
        ("routines", "Routines"),
        ("workflows", "Workflows"),
        ("runtimes", "Runtimes"),
        ("loops", "Loops"),
        ("workflows/w", "the w"),
    ):
        visitor.page.goto(f"{visitor.server.base}/#/{place}")
        heading = visitor.page.get_by_role("heading", level=1)
        expect(heading).to_contain_text(name, timeout=WAIT_MS)
        # The name is not pressed out by what can be done, nor that pressed below it.
        named = heading.locator("bdi").bounding_box()
        header = visitor.page.locator("header.session-header").bounding_box()
        assert named is not None
        assert header is not None
        assert named["width"] > 30, place
        assert header["height"] < 66, place
        shown = heading.evaluate("e => e.clientWidth >= e.querySelector('bdi').offsetWidth")
        assert shown, place
        visitor.shoot(f"places-phone-{name}")


def test_a_workflow_is_paused_resumed_cancelled_and_deleted(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    start(api, "w", step("one", Hang()), step("two"))
    visitor = visit(f"{PLACE}/w")
    expect(box(visitor, "one")).to_contain_text("attempt 1 of 2", timeout=WAIT_MS)
    visitor.see("workflow-pause").click()
    expect(visitor.see("workflow-status")).to_have_text("paused", timeout=WAIT_MS)
    visitor.see("workflow-resume").click()
    expect(visitor.see("workflow-status")).to_have_text("running", timeout=WAIT_MS)
    visitor.see("workflow-menu").click()
    expect(visitor.see("workflow-delete")).to_be_disabled()
    visitor.page.keyboard.press("Escape")
    visitor.see("workflow-cancel").click()
    expect(visitor.see("confirm-dialog")).to_contain_text("undone")
    visitor.see("confirm").click()
    expect(visitor.see("workflow-status")).to_have_text("cancelled", timeout=WAIT_MS)
    expect(visitor.see("attempt")).to_have_attribute("data-reason", "stopped")
    visitor.see("workflow-menu").click()
    visitor.see("workflow-delete").click()
    visitor.see("confirm").click()
    expect(visitor.see("nothing")).to_be_visible(timeout=WAIT_MS)
    assert api.get("/v1/workflows/w").status_code == 404


def test_a_workflow_that_others_start_is_seen_to_move(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    visitor = visit(PLACE)
    expect(visitor.see("nothing")).to_be_visible(timeout=WAIT_MS)
    start(api, "w", step("one"), step("two", approve=True), step("three"))
    row = visitor.see("workflow")
    expect(row).to_contain_text("1 of 3 steps", timeout=WAIT_MS)
    row.locator("a").click()
    expect(box(visitor, "two")).to_contain_text("needs approval", timeout=WAIT_MS)
    api.post("/v1/workflows/w/steps/two/approve", json={}).raise_for_status()
    expect(box(visitor, "three")).to_contain_text("completed", timeout=WAIT_MS)
    expect(visitor.see("workflow-status")).to_have_text("completed")


def test_the_graph_is_walked_without_a_mouse(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    start(api, "w", step("one"), step("two", after=[]), step("three", after=["one", "two"]))
    until(api, "w", "completed")
    visitor = visit(f"{PLACE}/w")
    keyboard = visitor.page.keyboard
    expect(box(visitor, "one")).to_be_visible(timeout=WAIT_MS)
    box(visitor, "one").focus()
    keyboard.press("ArrowDown")
    expect(box(visitor, "two")).to_be_focused()
    keyboard.press("End")
    expect(box(visitor, "three")).to_be_focused()
    keyboard.press("Enter")
    expect(visitor.see("step")).to_have_attribute("data-step", "three")
    expect(box(visitor, "three")).to_have_attribute("aria-current", "true")
    expect(box(visitor, "three")).to_be_focused()


def test_from_right_to_left_the_graph_is_a_mirror(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    start(api, "w", step("one"), step("left", after=["one"]), step("right", after=["one"]))
    until(api, "w", "completed")
    visitor = visit(f"{PLACE}/w")
    page = visitor.page
    expect(box(visitor, "left")).to_be_visible(timeout=WAIT_MS)

    def middles() -> tuple[list[float], list[float]]:
        """Of the lower boxes, and of the ends of the lines, as they are seen."""
        found = [box(visitor, name).bounding_box() for name in ("left", "right")]
        ends = page.evaluate(
            """[...document.querySelectorAll(".graph path")].map(path => {
              const end = path.getPointAtLength(path.getTotalLength());
              return new DOMPoint(end.x, end.y).matrixTransform(path.getScreenCTM()).x;
            })"""
        )
        return [each["x"] + each["width"] / 2 for each in found if each], ends

    for turn in ("ltr", "rtl"):
        page.evaluate("turn => { document.documentElement.dir = turn }", turn)
        boxes, ends = middles()
        assert (boxes[0] < boxes[1]) == (turn == "ltr")
        assert ends == pytest.approx(boxes, abs=2)
    visitor.shoot("workflow-rtl")


def test_a_hostile_workflow_is_only_shown(visit: Callable[..., Visitor], api: httpx.Client) -> None:
    bad = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>\u202e"
    long = "w" * 3_000
    start(
        api,
        "w",
        step("one", Say(f"{bad} {long}"), title=f"{bad}{long}"),
        step("two", Fail(bad + long)),
        name=bad,
        description=f"{bad} {long}",
    )
    until(api, "w", "failed")
    visitor = visit(f"{PLACE}/w")
    page = visitor.page
    for name in ("one", "two"):
        box(visitor, name).click()
        expect(visitor.see("step")).to_have_attribute("data-step", name, timeout=WAIT_MS)
        wide_px, screen_px = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide_px <= screen_px
    assert page.evaluate("window.pwned") is None
    assert page.locator("main img, main script").count() == 0
    expect(visitor.see("workflow-why")).to_contain_text("<img src=x")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["wide", "phone"])
def test_axe_finds_nothing(
    browser: Browser, server: ServerProcess, api: httpx.Client, scheme: str, width: str
) -> None:
    call = Call("pytest", {"args": "-x"}, output=["1 passed"])
    start(
        api,
        "release",
        step("plan", Say("0.1.0 is the first one."), title="Plan the release"),
        step("build", Say("I build.", calls=[call]), Say("Built."), check={"command": "true"}),
        step("docs", after=["plan"]),
        step("test", after=["build"]),
        step("publish", after=["test", "docs"], approve=True, compensate="withdraw"),
        step("announce"),
        step("withdraw"),
        name="release",
        description="Builds, tests and publishes a version.",
    )
    start(api, "broken", step("one", Fail("the provider is overloaded")), step("two"))
    until(api, "release", "waiting")
    until(api, "broken", "failed")
    more = {"has_touch": True, "is_mobile": True} if width == "phone" else {}
    visitor = Visitor(
        browser,
        server,
        color_scheme=scheme,
        viewport=PHONE if width == "phone" else WIDE,
        reduced_motion="reduce",
        **more,
    )
    visitor.context.add_init_script(path=AXE)
    visitor.open(PLACE)
    page = visitor.page

    def stands(name: str) -> None:
        page.wait_for_timeout(150)
        check_with_axe(page, name)
        visitor.shoot(f"workflows-{width}-{scheme}-{name}")
        wide_px, screen_px = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide_px <= screen_px, f"{name} is wider than the screen"

    expect(visitor.see("workflow")).to_have_count(2, timeout=WAIT_MS)
    stands("list")
    begin(visitor, YAML.replace("inputs.version }}", "inputs.verison }}"))
    expect(visitor.see("workflow-faults")).to_be_visible(timeout=WAIT_MS)
    stands("wrong")
    visitor.see("workflow-yaml").fill(YAML)
    visitor.see("input-version").fill("0.1.0")
    expect(visitor.see("workflow-plan")).to_be_visible(timeout=WAIT_MS)
    stands("start")
    visitor.see("workflow-discard").click()
    page.goto(f"{server.base}/{PLACE}/release")
    expect(visitor.see("step-approve")).to_be_visible(timeout=WAIT_MS)
    stands("waiting")
    box(visitor, "build").click()
    expect(visitor.see("attempt-output")).to_be_visible(timeout=WAIT_MS)
    stands("step")
    visitor.see("step-retry").hover()
    visitor.see("workflow-cancel").click()
    stands("cancel")
    page.goto(f"{server.base}/{PLACE}/broken")
    expect(visitor.see("not-a-rollback")).to_be_visible(timeout=WAIT_MS)
    stands("failed")
    visitor.see("step-skip").click()
    stands("skip")
    assert visitor.complaints == []
