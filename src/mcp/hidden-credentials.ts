import type { Elicitation } from '../core/records/pending.ts';
import type { Fetch } from '../lib/guarded-fetch.ts';
import { isJsonObject } from '../lib/json.ts';
import { credentialsIn, hiding } from '../lib/redact.ts';
import type { CallResponse } from './call-outcome.ts';
import { serverCredentials, type McpEndpoint } from './registry.ts';

/** Hides credentials in a text. */
export type Hide = (text: string) => string;

/** Responses to requests with an earlier token may still arrive. */
const MAX_TOKENS = 4;

/**
 * The credentials with which a server is reached: those of the operator, of a run, and the tokens of users and of clients.
 * They are hidden in all texts of the server: it may repeat them, and the log keeps these texts.
 */
export class HiddenCredentials {
  readonly #fixed: string[];
  /** The values of `authorization` that the last requests had. */
  #tokens: string[] = [];
  #search: Hide | undefined;

  constructor(endpoint: McpEndpoint) {
    const isOperated = 'command' in endpoint || endpoint.trusted;
    this.#fixed = isOperated ? serverCredentials(endpoint) : credentialsIn(endpoint.headers);
    this.#compile();
  }

  /** Undefined if there is nothing to hide. */
  get hide(): Hide | undefined {
    return this.#search;
  }

  /** `fetch` whose tokens are hidden from the moment on in which they are sent. */
  noting(fetch: Fetch): Fetch {
    return (url, init) => {
      this.#note(new Headers(init?.headers).get('authorization'));
      return fetch(url, init);
    };
  }

  #note(token: string | null): void {
    if (token === null || this.#fixed.includes(token) || this.#tokens.includes(token)) return;
    this.#tokens = [...this.#tokens, token].slice(-MAX_TOKENS);
    this.#compile();
  }

  #compile(): void {
    const secrets = [...this.#fixed, ...this.#tokens];
    this.#search = secrets.length > 0 ? hiding(secrets) : undefined;
  }
}

/** A response without credentials. The state that the server wants back with the next request is unchanged. */
export function withHidden(response: CallResponse, hide: Hide): CallResponse {
  if (response.status !== 'input_required') return inTexts(response, hide);
  const { request } = response;
  const questions = request.questions.map(([key, question]): [string, Elicitation] => [key, inTexts(question, hide)]);
  return { ...response, request: { ...request, questions } };
}

/** A value without credentials, in texts and in names of fields. */
export function inTexts<T>(value: T, hide: Hide | undefined): T {
  if (!hide) return value;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the same, but for some texts
  return JSON.parse(JSON.stringify(value), (_, one: unknown) => {
    if (typeof one === 'string') return hide(one);
    return isJsonObject(one) ? withHiddenKeys(one, hide) : one;
  }) as T;
}

/** A server may also repeat a credential as the name of a field. */
function withHiddenKeys(fields: Record<string, unknown>, hide: Hide): Record<string, unknown> {
  const entries = Object.entries(fields).map(([name, value]) => [hide(name), value] as const);
  return entries.some(([name]) => !Object.hasOwn(fields, name)) ? Object.fromEntries(entries) : fields;
}
