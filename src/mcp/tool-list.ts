import type { Client, Tool } from '@modelcontextprotocol/client';
import { waitOrAbort } from '../lib/abort.ts';
import { SingleFlight } from '../lib/single-flight.ts';

export interface ToolListOptions {
  /** For each page of the list. */
  answerTimeoutMs: number;
  /** How old the list may get. */
  listMaxAgeMs: number;
  /** Milliseconds that never run backwards. */
  now: () => number;
}

/** The tools of a server, kept until it says that they have changed, or for a while if it may not be able to say so. */
export class ToolList {
  readonly #client: Client;
  readonly #options: ToolListOptions;
  readonly #listing: SingleFlight<Tool[]>;
  #tools: Tool[] = [];
  #byName = new Map<string, Tool>();
  #freshUntil = -Infinity;
  /** Counts what made the list out of date, so that a listing notices when it was overtaken. */
  #changes = 0;
  #subscribed = false;

  constructor(client: Client, options: ToolListOptions) {
    this.#client = client;
    this.#options = options;
    this.#listing = new SingleFlight(options.now);
    client.setNotificationHandler('notifications/tools/list_changed', () => this.outdated());
  }

  async all(signal: AbortSignal): Promise<Tool[]> {
    if (this.#options.now() < this.#freshUntil) return this.#tools;
    return waitOrAbort(
      this.#listing.run(() => this.#list()),
      signal,
    );
  }

  /** A tool of the last list, however old. */
  find(name: string): Tool | undefined {
    return this.#byName.get(name);
  }

  outdated(): void {
    this.#freshUntil = -Infinity;
    this.#changes += 1;
  }

  async #list(): Promise<Tool[]> {
    const capabilities = this.#client.getServerCapabilities()?.tools;
    if (!capabilities) return [];
    const { answerTimeoutMs, listMaxAgeMs, now } = this.#options;
    // Servers of 2025-11-25 tell of changes by themselves.
    const subscribes = capabilities.listChanged === true && this.#client.getProtocolEra() === 'modern';
    if (subscribes && !this.#subscribed) void this.#subscribe();
    const [changes, freshUntil] = [this.#changes, now() + listMaxAgeMs];
    const { tools } = await this.#client.listTools(undefined, { timeout: answerTimeoutMs, cacheMode: 'bypass' });
    this.#tools = tools;
    this.#byName = new Map(tools.map((tool) => [tool.name, tool]));
    if (changes === this.#changes) this.#freshUntil = freshUntil;
    return tools;
  }

  /** Changes are told of only from the acknowledgement on, and until the stream ends. */
  async #subscribe(): Promise<void> {
    this.#subscribed = true;
    try {
      const { closed } = await this.#client.listen(
        { toolsListChanged: true },
        { timeout: this.#options.answerTimeoutMs },
      );
      this.outdated();
      await closed;
      this.outdated();
    } catch {
      // Not every server that has the capability keeps it; its list is renewed by age.
    } finally {
      this.#subscribed = false;
    }
  }
}
