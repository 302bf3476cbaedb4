import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import type { ModelProviders } from '../models/providers.ts';

interface DemoModelSources {
  models: Pick<ModelProviders, 'has' | 'alternatives'>;
  config: Pick<Config, 'demoModel'>;
  log: Pick<Logger, 'warn'>;
}

/**
 * Logs a warning if the provider of the demo agent's model says that it has no such model, or lists others: the first
 * session would end with an error. The server starts without waiting for it.
 */
export async function warnOfDemoModel({ models, config: { demoModel }, log }: DemoModelSources): Promise<void> {
  const isKnown = await models.has(demoModel);
  const alternatives = models.alternatives(demoModel);
  if (isKnown && alternatives === undefined) return;
  const problem = isKnown ? 'the model provider does not list' : 'the model provider does not have';
  const advice = alternatives === undefined ? '' : ` (${alternatives})`;
  log.warn({ model: demoModel }, `${problem} the model of the demo agent: set EVERTURN_DEMO_MODEL${advice}`);
}
