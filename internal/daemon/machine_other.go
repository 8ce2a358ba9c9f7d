//go:build !linux

package daemon

import "errors"

func openFiles() (uint64, error) { return 0, errors.ErrUnsupported }

func inodes(string) (free, total uint64, err error) { return 0, 0, errors.ErrUnsupported }
