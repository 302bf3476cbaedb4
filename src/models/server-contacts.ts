import type { Logger } from 'pino';
import type { ModelServer, ModelServers } from '../catalog/model-servers.ts';

interface ServerContactsOptions {
  catalog: { modelServers: Pick<ModelServers, 'record' | 'hasResponded'> };
  log: Pick<Logger, 'warn'>;
}

/** Which model servers have ever responded to this installation, also with an error. */
export class ServerContacts {
  readonly #options: ServerContactsOptions;
  /** A cache, so that the catalog is not read for each call: one entry for each provider. */
  readonly #responded = new Set<string>();

  constructor(options: ServerContactsOptions) {
    this.#options = options;
  }

  /** Records a response. The first one of a server is stored in the catalog, in the background. */
  note(server: ModelServer): void {
    const key = keyOf(server);
    if (this.#responded.has(key)) return;
    this.#responded.add(key);
    this.#options.catalog.modelServers.record(server, new Date().toISOString()).catch((error: unknown) => {
      // The next response is recorded instead.
      this.#responded.delete(key);
      this.#options.log.warn({ err: error, provider: server.providerName }, 'a model server could not be recorded');
    });
  }

  /** True also if the catalog cannot be read: calls of such a server are repeated as usual. */
  async hasResponded(server: ModelServer): Promise<boolean> {
    const key = keyOf(server);
    if (this.#responded.has(key)) return true;
    try {
      const hasResponded = await this.#options.catalog.modelServers.hasResponded(server);
      if (hasResponded) this.#responded.add(key);
      return hasResponded;
    } catch {
      return true;
    }
  }
}

function keyOf({ providerName, baseUrl = '' }: ModelServer): string {
  return `${providerName} ${baseUrl}`;
}
