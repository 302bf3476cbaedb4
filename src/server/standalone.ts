import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import { modelAccess } from '../models/open-providers.ts';
import { openServices, type Services } from './services.ts';
import type { Tracing } from '../telemetry/tracing.ts';
import { provisionTemporal, type ProvisionedTemporal } from '../temporal-server/provision.ts';
import { loadMcpRegistry } from '../mcp/registry.ts';

export interface StandaloneOptions {
  config: Config;
  log: Logger;
  tracing?: Tracing | undefined;
}

/** Opens what a standalone API and a standalone worker have in common. */
export async function openStandalone(
  { config, log, tracing, hasWorker }: StandaloneOptions & { hasWorker: boolean },
  cleanup: AsyncDisposableStack,
): Promise<{ services: Services; temporal: ProvisionedTemporal; model: string }> {
  const model = await modelAccess(config);
  if (!model) throw new Error('no model provider is configured');
  const registry = await loadMcpRegistry(config.mcpServersFile);
  const temporal = await provisionTemporal({ ...config, ...config.temporal, log });
  cleanup.defer(() => temporal.stop());
  const services = await openServices({ config, log, temporal, registry, model, hasWorker, tracing });
  cleanup.defer(() => services.close());
  return { services, temporal, model: model.name };
}
