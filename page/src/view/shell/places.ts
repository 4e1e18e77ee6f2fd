/** The places beside the sessions: `#/name`. A new one is a folder under `view/`, and a line here. */
import type { ComponentType } from "preact";

export interface Place {
  /** Its part of the address. */
  name: string;
  title: string;
  /** From `lazily`: a place is fetched when it is first shown. */
  Component: ComponentType;
}

export const PLACES: readonly Place[] = [];
