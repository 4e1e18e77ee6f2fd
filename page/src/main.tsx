import { render } from "preact";
import { App } from "./components/App";
import { start } from "./store";
import "./styles.css";

start();
render(<App />, document.getElementById("app") as HTMLElement);
