/** A step of a path: into a field, or to the member of a list in which a field has this value. */
export type Step = { field: string } | { select: { field: string; value: string } };

/** A field, then any number of selectors: `[field=value]`, where the value may be a JSON string. */
const PART = /(\.?)([^.[\]=]+)((?:\[[^.[\]=]+=(?:"(?:[^"\\]|\\.)*"|[^"\]][^\]]*|)\])*)/y;
const SELECTOR = /\[([^.[\]=]+)=("(?:[^"\\]|\\.)*"|[^\]]*)\]/g;

/**
 * The steps of a path such as `agent.environments[kind=web].mode.width`. A value that contains `]`, or begins with `"`,
 * is written as a JSON string: `[name="a]b"]`. Undefined if it is not a path.
 */
export function parsePath(path: string): Step[] | undefined {
  const steps: Step[] = [];
  const part = new RegExp(PART);
  do {
    const isFirst = part.lastIndex === 0;
    const [, dot = '', field = '', selectors = ''] = part.exec(path) ?? [];
    if (field === '' || (dot === '') !== isFirst) return undefined;
    steps.push({ field });
    for (const [, name = '', text = ''] of selectors.matchAll(SELECTOR)) {
      const value = text.startsWith('"') ? unquoted(text) : text;
      if (value === undefined) return undefined;
      steps.push({ select: { field: name, value } });
    }
  } while (part.lastIndex < path.length);
  return steps;
}

function unquoted(text: string): string | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'string' ? value : undefined;
  } catch {
    return undefined;
  }
}
