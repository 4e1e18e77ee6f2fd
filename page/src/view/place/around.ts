/** The places around the sessions: fetched as one, for they are made of the same parts. */
export { Loops } from "../loops/Loops";
export { NewSessionDialog } from "../making/NewSessionDialog";
export { Routines } from "../routines/Routines";
export { Runtimes } from "../runtimes/Runtimes";
export { Workflows } from "../workflows/Workflows";
