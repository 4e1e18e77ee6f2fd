/** The views of a session beside its conversation. A new one is a folder, and a line here. */
import type { ComponentType } from "preact";
import { lazily } from "../part/Lazy";

export interface SessionView {
  /** Its part of the address. */
  name: string;
  title: string;
  Component: ComponentType<{ id: string }>;
}

export const SESSION_VIEWS: readonly SessionView[] = [
  {
    name: "everything",
    title: "Everything",
    Component: lazily(async () => (await import("../everything/Everything")).Everything),
  },
  { name: "map", title: "Map", Component: lazily(async () => (await import("../map/TreeMap")).TreeMap) },
];
