#!/bin/sh
# deb: remove, or upgrade VERSION. rpm: 0 at the removal. An upgrade leaves the service running
# until its new program is there.
set -e

if [ -d /run/systemd/system ]; then
	case "$1" in
	remove | 0)
		systemctl disable --now redrive.service
		;;
	esac
fi
