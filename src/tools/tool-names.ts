import { sha256 } from '../lib/hash.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';

/** What model providers take as a tool's name. */
const CALLABLE = /^[a-zA-Z0-9_-]{1,64}$/;
const MAX_LENGTH = 64;

/** A server's name that can stand before `__` and be told from what follows. */
const LABEL = /^(?=.{1,32}$)[a-zA-Z0-9-]+(?:_[a-zA-Z0-9-]+)*$/;
const MAX_LABEL_LENGTH = 32;

const HASH_LENGTH = 8;

/**
 * The names under which a model calls the tools of an agent's servers. A tool's name follows from the agent, its server
 * and itself alone, never from what other tools there are at the moment: so a server that comes or goes in the middle
 * of a conversation renames nothing.
 *
 * - An agent with one server has its tools under their own names, but for those that `own`, the tools that are ours or
 *   the client's, have taken.
 * - With several servers every name is `<server>__<tool>`.
 * - What providers do not take as a name is put into their letters and cut, and ends with a digest of the whole.
 */
export function toolNames(spec: AgentSpec, own: ReadonlySet<string>): (server: string, tool: string) => string {
  const hasOne = (spec.mcp_servers ?? []).length === 1;
  return (server, tool) => {
    const long = `${label(server)}__${tool}`;
    const name = [...(hasOne ? [tool] : []), long].find((one) => CALLABLE.test(one) && !own.has(one));
    return name ?? digested(hasOne && !own.has(tool) ? tool : long, MAX_LENGTH);
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
