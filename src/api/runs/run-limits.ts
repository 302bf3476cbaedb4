import { iterationLimit, type AgentSpec } from '../../spec/agent-spec.ts';
import type { RunLimits } from './run-output.ts';

/** How long a run waits for the answers to one pause, unless its request says otherwise. */
export const ACTION_TIMEOUT_SECONDS = 86_400;

/** The limits that a run tells its clients. */
export function limitsOf(spec: AgentSpec): RunLimits {
  return { maxTurns: iterationLimit(spec), actionTimeoutSeconds: spec.actionSeconds ?? ACTION_TIMEOUT_SECONDS };
}
