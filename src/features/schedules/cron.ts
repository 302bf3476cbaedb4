import { NamedError } from '../../lib/errors.ts';

/** A cron expression is invalid; the message names the field. */
export class CronError extends NamedError {}

interface Field {
  name: string;
  min: number;
  max: number;
  /** The names of the values `min`, `min + 1`, ... */
  names?: string[];
}

const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const DAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];

const FIELDS = [
  { name: 'minute', min: 0, max: 59 },
  { name: 'hour', min: 0, max: 23 },
  { name: 'day of month', min: 1, max: 31 },
  { name: 'month', min: 1, max: 12, names: MONTHS },
  // 7 is Sunday, too.
  { name: 'day of week', min: 0, max: 7, names: DAYS },
] as const satisfies Field[];

/** The most days that each month can have. */
const LENGTHS = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/**
 * Rewrites a cron expression of five fields as expressions whose fields must all match. These have only numbers, lists
 * and `*`, which mean the same in all implementations. There are two expressions if the day of the month and the day of
 * the week are both restricted: then one of them suffices (`crontab(5)`), unless a field begins with `*`.
 * @throws CronError
 */
export function cronExpressions(expression: string): string[] {
  const texts = expression.trim().split(/\s+/);
  if (texts.length !== FIELDS.length) {
    throw new CronError(`must have five fields (${FIELDS.map(({ name }) => name).join(', ')}), such as 0 9 * * 1-5`);
  }
  const [minutes, hours, days, months, weekdays] = FIELDS.map((field, i) => values(field, texts[i] ?? ''));
  if (!minutes || !hours || !days || !months || !weekdays) throw new CronError('must have five fields');
  const monthly = [...days].some((day) => [...months].some((month) => day <= (LENGTHS[month - 1] ?? 0)));
  const ofWeek = new Set([...weekdays].map((day) => day % 7));
  const write = (dayOfMonth: string, dayOfWeek: string): string =>
    [written(minutes, 60), written(hours, 24), dayOfMonth, written(months, 12), dayOfWeek].join(' ');
  const isEither = !texts[2]?.startsWith('*') && !texts[4]?.startsWith('*');
  if (isEither) {
    return [...(monthly ? [write(written(days, 31), '*')] : []), write('*', written(ofWeek, 7))];
  }
  if (!monthly) throw new CronError('names no day that exists: check the day of month and the month');
  return [write(written(days, 31), written(ofWeek, 7))];
}

/** The values that a field names. */
function values(field: Field, text: string): Set<number> {
  const found = new Set<number>();
  for (const item of text.split(',')) {
    const [, range = '', step] = /^([^/]+)(?:\/(\d{1,2}))?$/.exec(item) ?? [];
    const [first, last = step === undefined ? first : `${field.max}`, ...rest] =
      range === '*' ? [`${field.min}`, `${field.max}`] : range.split('-');
    const [from, to, every] = [value(field, first), value(field, last), step === undefined ? 1 : Number(step)];
    if (from === undefined || to === undefined || rest.length > 0 || every < 1) {
      const example = `a number from ${field.min} to ${field.max}, a range, * or one of these with /step`;
      throw new CronError(`${field.name}: ${JSON.stringify(item)} is not ${example}`);
    }
    if (from > to) throw new CronError(`${field.name}: the range ${range} ends before it begins`);
    for (let one = from; one <= to; one += every) found.add(one);
  }
  return found;
}

function value({ min, max, names = [] }: Field, text = ''): number | undefined {
  const index = names.indexOf(text.toLowerCase());
  if (index >= 0) return min + index;
  const number = /^\d{1,2}$/.test(text) ? Number(text) : NaN;
  return number >= min && number <= max ? number : undefined;
}

/** A field with these values; `all` is the number of possible values. */
function written(numbers: Set<number>, all: number): string {
  return numbers.size === all ? '*' : [...numbers].toSorted((a, b) => a - b).join(',');
}
