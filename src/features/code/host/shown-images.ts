import type { FileContent } from '../../../blobs/store-files.ts';
import { sizeText } from '../../../core/files.ts';
import { errorMessage } from '../../../lib/errors.ts';
import { mediaTypeOf } from '../workspace/media-type.ts';
import { longerSide } from './image-size.ts';
import type { SessionSandbox } from './session-sandbox.ts';

/** The longer side in pixels: providers scale down larger images, but count their tokens before. */
const MAX_SIDE = 1_568;

/** The limits of one image at providers, and of all images of a result, which each further model call sends again. */
const MAX_IMAGE_BYTES = 3.5 * 1024 * 1024;
const MAX_ALL_BYTES = 16 * 1024 * 1024;

/** An image for a model. */
export interface ShownImage {
  mediaType: string;
  data: Buffer;
}

/** Prints each image scaled, or an empty object. */
const SCALE = `
from io import BytesIO
from IPython.display import display
from PIL import Image, ImageOps

def scaled(name):
    with Image.open(name) as image:
        is_photo = image.format == "JPEG"
        image.draft("RGB", (${MAX_SIDE}, ${MAX_SIDE}))
        image = ImageOps.exif_transpose(image)
        image.thumbnail((${MAX_SIDE}, ${MAX_SIDE}))
        data = BytesIO()
        image.convert("RGB" if is_photo else "RGBA").save(data, "JPEG" if is_photo else "PNG")
    return {"image/jpeg" if is_photo else "image/png": data.getvalue()}

for number in range(COUNT):
    try:
        shown = scaled(str(number))
    except Exception:
        shown = {"application/json": {}}
    display(shown, raw=True)
`;

/**
 * The images of code for models: scaled to 1,568 pixels on the longer side. The images may be hostile, so they are
 * decoded behind the wall of their sandbox, and only the headers of the results are read here.
 * @returns the images, and the problems of those that the model cannot see
 */
export async function shownImages(
  images: readonly ShownImage[],
  sandbox: Pick<SessionSandbox, 'runApart'>,
): Promise<{ images: ShownImage[]; problems: string[] }> {
  const large = images.filter((image) => !isSmall(image));
  const { scaled, problem } = await scaledImages(large, sandbox);
  const shown: ShownImage[] = [];
  const problems: string[] = problem === undefined ? [] : [`images could not be scaled: ${problem}`];
  let left = MAX_ALL_BYTES;
  for (const image of images) {
    const fitting = isSmall(image) ? image : scaled[large.indexOf(image)];
    if (!fitting || !isSmall(fitting) || fitting.data.length > Math.min(left, MAX_IMAGE_BYTES)) {
      problems.push(`an image of ${sizeText(image.data.length)} is too large for you to see, or cannot be decoded`);
      continue;
    }
    left -= fitting.data.length;
    shown.push(fitting);
  }
  return { images: shown, problems };
}

function isSmall({ data }: ShownImage): boolean {
  return (longerSide(data) ?? Infinity) <= MAX_SIDE;
}

async function scaledImages(
  images: readonly ShownImage[],
  sandbox: Pick<SessionSandbox, 'runApart'>,
): Promise<{ scaled: ShownImage[]; problem?: string }> {
  if (images.length === 0) return { scaled: [] };
  try {
    const files = images.map(({ data }) => data);
    const code = SCALE.replace('COUNT', String(images.length));
    const { displays } = await sandbox.runApart(files, code);
    return { scaled: displays.map(({ data }) => ({ mediaType: mediaTypeOf(data).mediaType, data })) };
  } catch (error) {
    return { scaled: [], problem: errorMessage(error) };
  }
}

/** An image as a file, with the type of its bytes: a provider rejects an image with another declared type. */
export function fileOf({ data }: ShownImage): FileContent {
  return { name: 'file', mimeType: mediaTypeOf(data).mediaType, base64: data.toString('base64') };
}
