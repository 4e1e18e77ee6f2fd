import { listRuntimes, type RuntimeLook } from "../../net/around";
import { useAround } from "../../state/around";
import { plural } from "../../text/format";
import { visibleCode, visibleText } from "../../text/visible";
import { Copy } from "../part/Copy";
import { Fold } from "../part/Fold";
import { Facts } from "../place/Facts";
import { Pill, type Tone } from "../place/Pill";
import { Place, PlaceProblem } from "../place/Place";
import { Distance } from "../place/When";

const KINDS: Record<RuntimeLook["kind"], string> = {
  "in-process": "in the server's process",
  subprocess: "a process that the server starts",
  remote: "dials in",
};

const TONES: Record<RuntimeLook["status"], Tone> = { idle: "calm", attached: "good", lost: "bad" };

/** Where tools run: what is attached, what rests, and what was lost and why. */
export function Runtimes() {
  const { found, problem } = useAround("runtime", null, "runtimes", listRuntimes);
  return (
    <Place title="Runtimes">
      <p class="lead">
        A runtime is where tools run: a workspace, and the tools over it. Sessions outlive it; looking starts none.
      </p>
      {problem !== null && <PlaceProblem problem={problem} />}
      {found === null && problem === null && <p class="hint">Loading…</p>}
      <ul class="cards" data-testid="runtimes">
        {found?.map((look, index) => <Runtime key={`${look.name}/${index}`} look={look} />)}
      </ul>
      {found !== null && <DialIn />}
    </Place>
  );
}

function Runtime({ look }: { look: RuntimeLook }) {
  const { name, kind, status, since, runtime_id: life, workspace, sessions, calls, cause, troubles } = look;
  const missing = Object.entries(troubles);
  return (
    <li class="card" data-testid="runtime" data-name={name} data-status={status}>
      <header>
        <h2>
          <bdi>{visibleText(name)}</bdi>
        </h2>
        <span class="hint">{KINDS[kind]}</span>
        <span class="space" />
        <Pill tone={calls > 0 ? "busy" : TONES[status]} words={calls > 0 ? plural(calls, "call") : status === "idle" && kind === "remote" ? "not attached" : status} status={status} testId="runtime-status" />
      </header>
      {status === "lost" && (
        <p class="trouble" data-testid="runtime-cause">
          Lost <Distance at={since} />
          {cause && (
            <>
              : <bdi>{visibleText(cause)}</bdi>
            </>
          )}
          . {kind === "remote" ? "The next need waits for it to dial in again." : "The next need starts another."}
        </p>
      )}
      <Facts
        items={[
          ["Workspace", workspace && <code dir="ltr">{visibleCode(workspace)}</code>],
          ["Since", status === "attached" && <Distance at={since} />],
          ["Served", status !== "idle" && plural(sessions, "session")],
          ["Life", life && <code dir="ltr">{visibleCode(life)}</code>],
        ]}
      />
      {status === "idle" && (
        <p class="hint">{kind === "remote" ? "Not attached: it dials in, and turns that need it wait a while for it." : "None runs; the next need starts one."}</p>
      )}
      {missing.length > 0 && (
        <div class="trouble">
          <p>Tools of {plural(missing.length, "MCP server")} are missing:</p>
          <ul>
            {missing.map(([server, why]) => (
              <li key={server}>
                <bdi>{visibleText(server)}</bdi>: <bdi>{visibleText(why)}</bdi>
              </li>
            ))}
          </ul>
        </div>
      )}
    </li>
  );
}

/** How one more comes to be here. */
function DialIn() {
  const server = new URL("./", document.baseURI).href.replace(/\/$/, "");
  const command = `perdure runtime --connect ${server} --workspace . --name NAME`;
  return (
    <Fold class="aside-fold" summary="Attach one from another machine" testId="dial-in">
      {() => (
        <>
          <p>
            On the machine where the tools should run, with a token that may dial in (<code>perdure token add NAME --role
            runtime</code>) in its environment as <code>PERDURE_TOKEN</code>:
          </p>
          <div class="command">
            <code dir="ltr" tabIndex={0}>
              {command}
            </code>
            <Copy label="Copy the command" text={() => command} />
          </div>
        </>
      )}
    </Fold>
  );
}
