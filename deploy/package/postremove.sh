#!/bin/sh
# deb: remove, purge and others. rpm: 0 at the removal.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ]; then
	rm -rf /etc/redrive
	# What was accepted is thrown away by a person, not by a package manager.
	if [ -d /var/lib/redrive ] && ! rmdir /var/lib/redrive 2>/dev/null; then
		echo "redrive: messages are left in /var/lib/redrive, whose user stays; remove both by hand" >&2
	elif getent passwd redrive >/dev/null; then
		userdel redrive
	fi
fi
