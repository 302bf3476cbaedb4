import type { SavedTool } from '../saved-tools/saved-tool.ts';
import type { SessionSandbox } from './session-sandbox.ts';

/**
 * Compiles the files `0` (the interface) and `1` (its implementation, if any) without running their code, and prints
 * the problems.
 */
const CHECK = `
import symtable, traceback, warnings

def problem_of(number, name, wanted):
    with open(str(number), encoding="utf-8") as file:
        source = file.read()
    try:
        compile(source, name, "exec", dont_inherit=True)
        table = symtable.symtable(source, name, "exec")
    except Exception as error:
        return "".join(traceback.format_exception_only(error))
    defined = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    missing = [one for one in wanted if one not in defined]
    return f"{name} does not define {' and '.join(missing)}" if missing else None

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    problems = [problem_of(0, "api.py", WANTED), *(problem_of(1, "impl.py", []) for _ in range(IMPLS))]
print("\\n".join(problem for problem in problems if problem), end="")
`;

const WANTED = { tool: ['run'], parser: ['ParseResult', 'parse'] };

/** The maximum number of characters of the problems. */
const MAX_PROBLEM_LENGTH = 4_096;

/**
 * The problem that Python reports in the sources of a saved tool; undefined if it is importable. The sources may attack
 * the compiler, so they are compiled behind the wall of the sandbox, in a kernel of their own.
 */
export async function sourceProblem(
  { kind, api, impl }: Pick<SavedTool, 'kind' | 'api' | 'impl'>,
  sandbox: Pick<SessionSandbox, 'runApart'>,
): Promise<string | undefined> {
  const sources = [api, ...(typeof impl === 'string' ? [impl] : [])].map((source) => Buffer.from(source));
  const code = `WANTED = ${JSON.stringify(WANTED[kind])}\nIMPLS = ${sources.length - 1}\n${CHECK}`;
  const { exit, parts } = await sandbox.runApart(sources, code);
  const said = parts
    .map(({ text }) => text)
    .join('')
    .trim()
    .slice(0, MAX_PROBLEM_LENGTH);
  if (exit === 'ok') return said === '' ? undefined : said;
  return `Python could not compile it (${exit}): ${said}`;
}
