import { listLoops, type LoopLook, type Vendor } from "../../net/around";
import { useAround } from "../../state/around";
import { newSession } from "../../state/sessions";
import { visibleText } from "../../text/visible";
import { Pill } from "../place/Pill";
import { Place, PlaceProblem } from "../place/Place";

/** What can answer in a session, and how to enable what cannot yet. */
export function Loops() {
  const { found, problem } = useAround("loop", null, "loops", listLoops);
  return (
    <Place title="Loops">
      <p class="lead">A loop is what answers in a session: a model, an agent of a library, a command line. A session is made with one.</p>
      {problem !== null && <PlaceProblem problem={problem} />}
      {found === null && problem === null && <p class="hint">Loading…</p>}
      {found !== null && (
        <>
          <ul class="rows" data-testid="loops">
            {found.loops.map((look) => (
              <Loop key={look.name} look={look} />
            ))}
          </ul>
          <section aria-labelledby="vendors">
            <h2 id="vendors">Whose models and agents could be behind one</h2>
            <ul class="rows" data-testid="vendors">
              {found.vendors.map((vendor) => (
                <VendorRow key={vendor.name} vendor={vendor} />
              ))}
            </ul>
          </section>
        </>
      )}
    </Place>
  );
}

const KINDS: Record<string, string> = { import: "a Python factory", model: "a model", shell: "commands", acp: "a command-line agent" };
const ORIGINS: Record<string, string> = {
  configuration: "from perdure.toml",
  setting: "named in the settings",
  application: "from the application",
  plugin: "from a plugin",
  "built-in": "built in",
};

function Loop({ look: { name, kind, origin, is_default: isDefault, missing } }: { look: LoopLook }) {
  return (
    <li class="row" data-testid="loop" data-name={name}>
      <span class="row-name">
        <bdi>{visibleText(name)}</bdi> {isDefault && <Pill tone="good" words="default" />}
      </span>
      <button
        type="button"
        aria-label={`New session with ${visibleText(name)}`}
        disabled={missing !== null}
        data-testid="loop-use"
        onClick={() => void newSession({ loop: name })}
      >
        New session
      </button>
      <span class="row-says">
        {missing === null ? `${KINDS[kind] ?? kind}, ${ORIGINS[origin] ?? origin}` : <span class="bad">{visibleText(missing)}</span>}
      </span>
    </li>
  );
}

function VendorRow({ vendor: { name, is_usable: isUsable, how } }: { vendor: Vendor }) {
  return (
    <li class="row" data-testid="vendor" data-name={name}>
      <span class="row-name">{visibleText(name)}</span>
      <Pill tone={isUsable ? "good" : "calm"} words={isUsable ? "usable" : "not here"} />
      {how !== null && <span class="row-says">{visibleText(how)}</span>}
    </li>
  );
}
