import { MAX_MESSAGE_LENGTH, MAX_NAME_LENGTH } from './frames.ts';
import type { HiddenTexts } from './kernel.ts';
import { withoutOpenEnd } from './masked-output.ts';
import type { CellEnd, Display } from './running-cell.ts';

/** The end of a cell with all texts masked, including hidden values that were cut before. */
export function maskedEnd(end: CellEnd, hidden: HiddenTexts): CellEnd {
  const mask = (text: string): string => hidden.mask(text);
  // A text of the maximum length was probably cut.
  const maskAtMost = (max: number) => (text: string) =>
    mask(text.length < max ? text : withoutOpenEnd(text, hidden.values));
  const maskName = maskAtMost(MAX_NAME_LENGTH);
  const { error, parts, displays, defined, names, notices, variables } = end;
  return {
    ...end,
    ...(error && { error: { name: maskName(error.name), message: maskAtMost(MAX_MESSAGE_LENGTH)(error.message) } }),
    parts: parts.map(({ channel, text }) => ({ channel, text: mask(text) })),
    displays: displays.map((display) => maskedDisplay(display, mask)),
    defined: defined.map(maskName),
    names: names.map(maskName),
    notices: notices.map(mask),
    ...(variables && {
      variables: { ...variables, kept: variables.kept.map(maskName), lost: variables.lost.map(maskName) },
    }),
  };
}

/** A display with its text masked; images have none. */
function maskedDisplay({ mediaType, data }: Display, mask: (text: string) => string): Display {
  if (mediaType === 'image/png' || mediaType === 'image/jpeg') return { mediaType, data };
  return { mediaType, data: Buffer.from(mask(data.toString())) };
}
