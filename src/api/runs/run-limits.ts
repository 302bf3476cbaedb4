import { iterationLimit, modelNames, type AgentSpec } from '../../spec/agent-spec.ts';
import type { RunLimits } from './run-output.ts';

/** How long a run waits for the answers to one pause, unless its request says otherwise. */
export const ACTION_TIMEOUT_SECONDS = 86_400;

/** What the output of a run depends on beside its log. */
export function runLimitsOf(spec: AgentSpec): RunLimits {
  const { pricing, actionSeconds } = spec;
  return {
    maxTurns: iterationLimit(spec),
    actionTimeoutSeconds: actionSeconds ?? ACTION_TIMEOUT_SECONDS,
    ...(pricing && { pricing: { models: modelNames(spec), prices: pricing } }),
  };
}
