#!/bin/bash
# Builds the version that an upgrade starts from: upgrade.sh REVISION DIRECTORY. It writes
# image.tar, with the image ovnkube:earlier, and dist of that revision of this repository to
# the directory, unless they are there already. Packages that "make image" has unpacked are reused.
set -euo pipefail
cd "$(dirname "$0")/../.."
revision=$(git rev-parse --verify "$1^{commit}") directory=$2
if [[ $(cat "$directory/revision" 2>/dev/null) == "$revision" ]]; then
	exit
fi
rm -rf "$directory"
mkdir -p "$directory"
echo "upgrade: building $(git show --no-patch --format='%h of %cs' "$revision"), $(git rev-list --count "$revision..HEAD") commits ago"
git clone --quiet --shared --no-checkout . "$directory/source"
git -C "$directory/source" checkout --quiet "$revision"
if [[ -e _output/image-root ]]; then
	cp -al _output/image-root "$directory/image-root"
fi
IMAGE=ovnkube:earlier IMAGE_ROOT=$directory/image-root make -C "$directory/source" image OUT="$directory"
mv "$directory/source/dist" "$directory/dist"
rm -rf "${directory:?}/source" "${directory:?}/bin"
echo "$revision" >"$directory/revision"
