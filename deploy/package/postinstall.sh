#!/bin/sh
# deb: configure [VERSION]. rpm: 1 at the first installation, 2 at an upgrade.
set -e

if ! getent passwd redrive >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/redrive --no-create-home --shell /usr/sbin/nologin redrive
fi
# It may hold secrets.
chown root:redrive /etc/redrive /etc/redrive/redrive.yaml
chmod 0750 /etc/redrive
chmod 0640 /etc/redrive/redrive.yaml

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	case "$1:$2" in
	configure: | 1:)
		systemctl enable --now redrive.service
		;;
	configure:* | [2-9]:*)
		systemctl try-restart redrive.service
		;;
	esac
fi
