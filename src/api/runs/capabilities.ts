import type { AgentSpec } from '../../spec/agent-spec.ts';
import { refusal, type FieldPath } from './errors.ts';
import type { AgentChanges, Capability } from './wire/agent-params.ts';

/** The capabilities that a model lacks according to the request. Those that it declares as present have no effect. */
export function missingCapabilities({ model }: AgentChanges): ReadonlySet<Capability> {
  const given = typeof model === 'object' ? (model?.metadata?.capabilities ?? {}) : {};
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the keys of its schema
  const names = Object.keys(given) as Capability[];
  return new Set(names.filter((name) => given[name] === false));
}

/**
 * Checks that an agent needs none of the `missing` capabilities. `spec` is the agent with the changes of the request; a
 * need that does not come from the request is refused at the path of the capability.
 * @throws ApiError `feature_not_available`
 */
export function requireCapabilities(
  spec: AgentSpec,
  params: AgentChanges,
  { missing, root }: { missing: ReadonlySet<Capability>; root: FieldPath },
): void {
  for (const { capability, fieldPath } of needs(spec, params)) {
    if (!missing.has(capability)) continue;
    const message = `this needs a model with ${capability}, which the request says that it has not`;
    throw refusal('feature_not_available', [...root, ...fieldPath], message);
  }
}

/** The capabilities that an agent needs, with their paths in the request: by default, those of the capability. */
function needs(spec: AgentSpec, params: AgentChanges): { capability: Capability; fieldPath: FieldPath }[] {
  const need = (capability: Capability, fieldPath?: FieldPath | null) => ({
    capability,
    fieldPath: fieldPath ?? ['model', 'metadata', 'capabilities', capability],
  });
  const { tools, toolkits, response_format: format, reasoning, modalities, audio } = params;
  const functions = (tools ?? []).findIndex(({ type }) => type !== 'web_search');
  const own = [spec.client_tools, spec.mcp_servers, spec.skills, spec.agents].some((list) => (list ?? []).length > 0);
  const { reasoning_effort: effort } = spec.model.params ?? {};
  const isStructured = spec.response_format && spec.response_format.type !== 'text';
  return [
    ...(functions >= 0 ? [need('function_calling', ['tools', functions])] : []),
    ...((toolkits ?? []).length > 0 ? [need('function_calling', ['toolkits', 0])] : []),
    ...(own ? [need('function_calling')] : []),
    ...(isStructured ? [need('structured_output', format && ['response_format'])] : []),
    ...(effort && effort !== 'none' ? [need('reasoning', reasoning && ['reasoning'])] : []),
    ...(audio ? [need('audio_output', ['audio'])] : []),
    ...(modalities ?? []).map((modality, i) => need(`${modality}_output`, ['modalities', i])),
  ];
}
