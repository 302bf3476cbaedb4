import { isImage } from '../../core/files.ts';
import { refusal, type Place } from './errors.ts';
import type { InputPart } from './wire/parts.ts';

/** Whose content a part is: of a user, of a model, or of a tool's result. */
type Author = 'user' | 'model' | 'result';

/**
 * Checks that a model can be given a part. The searches of a provider and citations are not given to it, and not
 * refused: the text of the answer has what was found.
 * @throws ApiError `unsupported_part`
 */
export function requireSupported(part: InputPart, author: Author, place: Place): void {
  const problem = problemOf(part, author);
  if (problem !== undefined) throw refusal('unsupported_part', place, problem);
}

function problemOf(part: InputPart, author: Author): string | undefined {
  switch (part.type) {
    case 'image':
      if (author === 'model') return 'this server cannot give a model images that a model has made: leave it out';
      // A file of another type that a tool returns is described to the model.
      if (author === 'result' || isImage({ mimeType: part.mime_type })) return undefined;
      return `models accept PNG, JPEG, GIF and WebP images, not ${part.mime_type}`;
    case 'audio':
      if (author === 'result') return undefined;
      return 'this server does not support audio yet: send a transcript as text';
    case 'source':
      return 'this server does not support sources yet: send the content as text';
    case 'text':
    case 'reasoning':
    case 'tool-call':
    case 'tool-result':
      return undefined;
  }
}
