/** Who is signed in, and whether they may do more than read. */
import { computed, effect, signal } from "@preact/signals";
import { type Me, readMe } from "../net/api";
import { isSignedOut } from "./notice";

export const me = signal<Me | null>(null);

/** Until it is known, everything is offered: the server decides in any case. */
export const isReader = computed(() => me.value !== null && !me.value.rights.includes("write"));

export function startMe(): void {
  effect(() => {
    if (isSignedOut.value) return;
    readMe().then(
      (found) => {
        me.value = found;
      },
      () => undefined, // whoever is not signed in is told so; this is only a hint
    );
  });
}
