export interface Fault {
  line: number | null;
  field: string;
  detail: string;
}

/** A problem document, or a failure to reach the server (`status` 0): something a person can read. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    /** The session that it concerns, where the server says so. */
    readonly sessionId: string | null = null,
    /** All that is wrong with a document that was sent. */
    readonly faults: readonly Fault[] = [],
  ) {
    super(detail);
  }

  /** Whether the request may have been lost on its way, or came too soon: the same one may be sent again. */
  get isUnreached(): boolean {
    return [0, 429, 502, 503, 504].includes(this.status);
  }

  get isAbsence(): boolean {
    return this.code === "session_not_found" || this.code === "session_deleted";
  }
}

/** The response, if it is a good one. */
export async function request(url: URL, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { credentials: "same-origin", cache: "no-store", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(0, "unreached", "The server cannot be reached.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

interface ProblemDocument {
  detail?: string;
  title?: string;
  code?: string;
  session_id?: string;
  problems?: readonly Fault[];
}

async function problemOf(response: Response): Promise<Problem> {
  const fallback = `The server answered ${response.status} ${response.statusText}`.trim();
  try {
    const body = (await response.json()) as ProblemDocument;
    const detail = body.detail ?? body.title ?? fallback;
    return new Problem(response.status, body.code ?? "", detail, body.session_id ?? null, body.problems);
  } catch {
    return new Problem(response.status, "", fallback);
  }
}
