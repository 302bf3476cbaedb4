import type { Logger } from 'pino';
import type { ModelServer, ModelServers } from '../catalog/model-servers.ts';

interface ServerContactsOptions {
  catalog: { modelServers: Pick<ModelServers, 'record' | 'hasAnswered'> };
  log: Pick<Logger, 'warn'>;
}

/** Which model servers have ever answered this installation, also with an error. */
export class ServerContacts {
  readonly #options: ServerContactsOptions;
  /** Those that this process knows of, so that the catalog is not asked for each call: one for each provider. */
  readonly #answered = new Set<string>();

  constructor(options: ServerContactsOptions) {
    this.#options = options;
  }

  /** Notes an answer. The first one of a server enters the catalog, in the background. */
  note(server: ModelServer): void {
    const key = keyOf(server);
    if (this.#answered.has(key)) return;
    this.#answered.add(key);
    this.#options.catalog.modelServers.record(server, new Date().toISOString()).catch((error: unknown) => {
      // The next answer is recorded instead.
      this.#answered.delete(key);
      this.#options.log.warn({ err: error, provider: server.providerName }, 'a model server could not be recorded');
    });
  }

  /** True also if the catalog cannot tell: calls of such a server are repeated as usual. */
  async hasAnswered(server: ModelServer): Promise<boolean> {
    const key = keyOf(server);
    if (this.#answered.has(key)) return true;
    try {
      const hasAnswered = await this.#options.catalog.modelServers.hasAnswered(server);
      if (hasAnswered) this.#answered.add(key);
      return hasAnswered;
    } catch {
      return true;
    }
  }
}

function keyOf({ providerName, baseUrl = '' }: ModelServer): string {
  return `${providerName} ${baseUrl}`;
}
