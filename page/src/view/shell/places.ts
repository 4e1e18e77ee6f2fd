/** The places beside the sessions: `#/name`. A new one is a folder under `view/`, and a line here. */
import type { ComponentType } from "preact";
import { lazily } from "../part/Lazy";

export interface Place {
  /** Its part of the address. */
  name: string;
  title: string;
  /** From `lazily`: a place is fetched when it is first shown. */
  Component: ComponentType;
}

const around = () => import("../place/around");

export const NewSessionDialog = lazily(async () => (await around()).NewSessionDialog);

export const PLACES: readonly Place[] = [
  { name: "routines", title: "Routines", Component: lazily(async () => (await around()).Routines) },
  { name: "workflows", title: "Workflows", Component: lazily(async () => (await around()).Workflows) },
  { name: "runtimes", title: "Runtimes", Component: lazily(async () => (await around()).Runtimes) },
  { name: "loops", title: "Loops", Component: lazily(async () => (await around()).Loops) },
];
