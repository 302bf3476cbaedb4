import { hashOf } from '../../../lib/hash.ts';
import { parserFor } from '../saved-tools/saved-modules.ts';
import { pythonLiteral, pythonString, docstring } from './python-literals.ts';
import { pythonNames } from './python-names.ts';
import { toolModule, type CodeTool } from './tool-module.ts';

/** The package of all servers, in the folder of the tools. */
export const TOOLS_PACKAGE = 'mcptools';
/** Kernels reject longer names. */
const MAX_NAME = 1024;
/** The characters of the reason why a server is unavailable. */
const MAX_REASON = 2000;

/** The Python modules by which code calls tools. */
export interface CodeModules {
  /** The sources, by paths such as `mcptools/lab/add.py`. */
  files: Map<string, string>;
  /** A hash of the sources. */
  hash: string;
}

/** The module of a tool. */
export interface ToolModule<T> {
  tool: T;
  /** The package of its server: the name of the server in Python. */
  category: string;
  /** The name of the tool in Python. */
  name: string;
  /** For example `mcptools.lab.add`. */
  module: string;
  /** The path of the source, for example `mcptools/lab/add.py`. */
  file: string;
}

/** The modules of tools, by server and tool. A tool whose name is too long for kernels has none. */
export function modulesOf<T extends Pick<CodeTool, 'server' | 'name'>>(tools: readonly T[]): ToolModule<T>[] {
  const callable = tools.filter(({ server, name }) => Math.max(server.length, name.length) <= MAX_NAME);
  const byServer = Map.groupBy(callable, ({ server }) => server);
  return [...pythonNames([...byServer.keys()])].flatMap(([server, category]) => {
    const ofServer = new Map(byServer.get(server)?.map((tool) => [tool.name, tool]));
    return [...pythonNames([...ofServer.keys()])].flatMap(([original, name]): ToolModule<T>[] => {
      const tool = ofServer.get(original);
      const module = `${TOOLS_PACKAGE}.${category}.${name}`;
      return tool ? [{ tool, category, name, module, file: `${TOOLS_PACKAGE}/${category}/${name}.py` }] : [];
    });
  });
}

/** A server whose tools cannot currently be listed. */
export interface UnavailableServer {
  server: string;
  reason: string;
}

/**
 * Generates the modules of tools. Names and schemas may be hostile: the generated code is valid Python, and bounded.
 * The import of a tool of an unavailable server fails with the reason.
 *
 * @param parsers the modules of saved tools that parse their texts
 */
export function codeModules(
  tools: readonly CodeTool[],
  unavailable: readonly UnavailableServer[] = [],
  parsers: ReadonlySet<string> = new Set(),
): CodeModules {
  const files = new Map<string, string>();
  const modules = modulesOf(tools);
  for (const module of modules) {
    const about = docstring(`Tools of the MCP server ${module.tool.server}.`, '');
    files.set(`${TOOLS_PACKAGE}/${module.category}/__init__.py`, `${about}\n`);
    files.set(module.file, toolModule(module.tool, parserFor(module, parsers)).source);
  }
  for (const { server, reason } of unavailable) {
    const [category] = pythonNames([server.slice(0, MAX_NAME)]).values();
    const file = `${TOOLS_PACKAGE}/${category}/__init__.py`;
    if (files.has(file)) continue;
    const text = `The tools of ${server} are not available now: ${reason}`;
    files.set(file, `raise ImportError(${pythonString(text.slice(0, MAX_REASON))})\n`);
  }
  files.set(`${TOOLS_PACKAGE}/__index__.py`, indexOf(modules));
  return { files, hash: hashOf([...files]) };
}

function indexOf(modules: readonly ToolModule<CodeTool>[]): string {
  const entryOf = ({ tool: { server, name }, module }: ToolModule<CodeTool>): string =>
    `    (${pythonString(server)}, ${pythonString(name)}): ${pythonLiteral(module)},`;
  return [
    docstring('The modules of all tools, by the names of servers and tools, and the other way round.', ''),
    '',
    'MODULES = {',
    ...modules.map(entryOf),
    '}',
    'TOOLS = {module: names for names, module in MODULES.items()}',
    '',
  ].join('\n');
}
