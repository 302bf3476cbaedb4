import { hashOf } from '../../../lib/hash.ts';
import { parserFor } from '../saved-tools/saved-modules.ts';
import { pythonLiteral, pythonString, docstring } from './python-literals.ts';
import { pythonNames } from './python-names.ts';
import { toolModule, type CodeTool } from './tool-module.ts';

/** The package of all servers, in the folder of the tools. */
export const TOOLS_PACKAGE = 'mcptools';
/** Kernels accept no longer ones. */
const MAX_NAME = 1024;
/** Of the text that says why a server is not available, in characters. */
const MAX_REASON = 2000;

/** Where code has a tool. */
export interface CodeModule {
  server: string;
  /** As the server calls it. */
  tool: string;
  /** For example `mcptools.lab.add`. */
  module: string;
  /** How it is called: `run(Params(a: int, b: int = 1)) -> str`. */
  signature: string;
}

/** The Python modules by which code calls tools. */
export interface CodeModules {
  /** Their sources, by paths such as `mcptools/lab/add.py`. */
  files: Map<string, string>;
  /** Changes with the sources. */
  hash: string;
  modules: CodeModule[];
}

/** The module of a tool. */
export interface CodePlace<T> {
  tool: T;
  /** The package of its server: the name of the server in Python. */
  category: string;
  /** The name of the tool in Python. */
  name: string;
  module: string;
  /** Of the source, for example `mcptools/lab/add.py`. */
  file: string;
}

/** Where the modules of tools are, by server and tool. A tool whose name is too long for kernels has none. */
export function codePlaces<T extends Pick<CodeTool, 'server' | 'name'>>(tools: readonly T[]): CodePlace<T>[] {
  const byServer = new Map<string, Map<string, T>>();
  for (const tool of tools) {
    if (Math.max(tool.server.length, tool.name.length) > MAX_NAME) continue;
    const ofServer = byServer.get(tool.server) ?? new Map<string, T>();
    byServer.set(tool.server, ofServer.set(tool.name, tool));
  }
  return [...pythonNames([...byServer.keys()])].flatMap(([server, category]) => {
    const ofServer = byServer.get(server) ?? new Map<string, T>();
    return [...pythonNames([...ofServer.keys()])].flatMap(([original, name]): CodePlace<T>[] => {
      const tool = ofServer.get(original);
      const module = `${TOOLS_PACKAGE}.${category}.${name}`;
      return tool ? [{ tool, category, name, module, file: `${TOOLS_PACKAGE}/${category}/${name}.py` }] : [];
    });
  });
}

/** A server whose tools are not known now. */
export interface UnavailableServer {
  server: string;
  reason: string;
}

/**
 * Generates the modules of tools. Names and schemas may be hostile: what is generated is valid Python, and bounded. Code
 * that imports a tool of a server that is not available is told why.
 *
 * @param parsers the modules of saved tools that parse their texts
 */
export function codeModules(
  tools: readonly CodeTool[],
  unavailable: readonly UnavailableServer[] = [],
  parsers: ReadonlySet<string> = new Set(),
): CodeModules {
  const files = new Map<string, string>();
  const modules: CodeModule[] = [];
  for (const place of codePlaces(tools)) {
    const { tool, category, file, module } = place;
    const { server, name } = tool;
    const { source, signature } = toolModule(tool, parserFor(place, parsers));
    files.set(`${TOOLS_PACKAGE}/${category}/__init__.py`, `${docstring(`Tools of the MCP server ${server}.`, '')}\n`);
    files.set(file, source);
    modules.push({ server, tool: name, module, signature });
  }
  for (const { server, reason } of unavailable) {
    const [category] = pythonNames([server.slice(0, MAX_NAME)]).values();
    const file = `${TOOLS_PACKAGE}/${category}/__init__.py`;
    if (files.has(file)) continue;
    const text = `The tools of ${server} are not available now: ${reason}`;
    files.set(file, `raise ImportError(${pythonString(text.slice(0, MAX_REASON))})\n`);
  }
  files.set(`${TOOLS_PACKAGE}/__index__.py`, indexOf(modules));
  return { files, hash: hashOf([...files]), modules };
}

function indexOf(modules: CodeModule[]): string {
  const names = modules.map(({ server, tool, module }) => ({
    name: `(${pythonString(server)}, ${pythonString(tool)})`,
    module,
  }));
  return [
    docstring('The modules of all tools, by the names of servers and tools, and the other way round.', ''),
    '',
    'MODULES = {',
    ...names.map(({ name, module }) => `    ${name}: ${pythonLiteral(module)},`),
    '}',
    'TOOLS = {module: names for names, module in MODULES.items()}',
    '',
  ].join('\n');
}
