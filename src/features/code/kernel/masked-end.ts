import type { CellEnd, Display } from './running-cell.ts';

/** The end of a cell of which all texts are masked: also what output was cut into on its way. */
export function maskedEnd(end: CellEnd, mask: (text: string) => string): CellEnd {
  const { error, parts, displays, defined, names, notices, variables } = end;
  return {
    ...end,
    ...(error && { error: { name: mask(error.name), message: mask(error.message) } }),
    parts: parts.map(({ channel, text }) => ({ channel, text: mask(text) })),
    displays: displays.map((display) => maskedDisplay(display, mask)),
    defined: defined.map(mask),
    names: names.map(mask),
    notices: notices.map(mask),
    ...(variables && {
      variables: { ...variables, kept: variables.kept.map(mask), lost: variables.lost.map(mask) },
    }),
  };
}

/** Images have no texts. */
function maskedDisplay({ mediaType, data }: Display, mask: (text: string) => string): Display {
  if (mediaType === 'image/png' || mediaType === 'image/jpeg') return { mediaType, data };
  return { mediaType, data: Buffer.from(mask(data.toString())) };
}
