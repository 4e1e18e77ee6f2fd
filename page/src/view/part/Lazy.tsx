import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { report } from "../../state/notice";

/** A component that is fetched when it is first shown. */
export function lazily<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let found: ComponentType<P> | null = null;
  return function Lazy(props: P) {
    const [Component, setComponent] = useState<ComponentType<P> | null>(() => found);
    useEffect(() => {
      if (Component !== null) return;
      load().then((loaded) => {
        found = loaded;
        setComponent(() => loaded);
      }, report);
    }, []);
    return Component === null ? <p class="hint middle">Loading…</p> : <Component {...props} />;
  };
}
