import { sha256 } from '../lib/hash.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';

/** The names of tools that model providers accept. */
const CALLABLE = /^[a-zA-Z0-9_-]{1,64}$/;
const MAX_LENGTH = 64;

/** A server name that can precede `__` without ambiguity. */
const LABEL = /^(?=.{1,32}$)[a-zA-Z0-9-]+(?:_[a-zA-Z0-9-]+)*$/;
const MAX_LABEL_LENGTH = 32;

const HASH_LENGTH = 8;

/**
 * Returns the function that names the tools of an agent's servers for the model. A name depends only on the agent, the
 * server and the tool, never on which other tools are currently offered, so a server that appears or disappears during
 * a conversation renames nothing.
 *
 * - With one server, its tools keep their own names, except for those in `taken`: the names of the system's and the
 *   client's tools.
 * - With several servers, every name is `<server>__<tool>`.
 * - A name that providers do not accept is reduced to their characters, cut, and ends with a digest of the full name.
 */
export function toolNames(spec: AgentSpec, taken: ReadonlySet<string>): (server: string, tool: string) => string {
  const hasOne = (spec.mcp_servers ?? []).length === 1;
  return (server, tool) => {
    const long = `${label(server)}__${tool}`;
    const name = [...(hasOne ? [tool] : []), long].find((one) => CALLABLE.test(one) && !taken.has(one));
    return name ?? digested(hasOne && !taken.has(tool) ? tool : long, MAX_LENGTH);
  };
}

function label(server: string): string {
  return LABEL.test(server) ? server : digested(server, MAX_LABEL_LENGTH);
}

function digested(text: string, maxLength: number): string {
  const letters = text.replaceAll(/[^a-zA-Z0-9-]+/g, '_').replaceAll(/^_|_$/g, '');
  const digest = sha256(text).slice(0, HASH_LENGTH);
  return `${letters.slice(0, maxLength - HASH_LENGTH - 1)}_${digest}`;
}
