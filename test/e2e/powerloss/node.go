package powerloss

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// node is a file as the kernel knows it.
type node struct {
	fs.Inode
	disk *Disk
	file *file
}

var (
	_ fs.NodeLookuper  = (*node)(nil)
	_ fs.NodeReaddirer = (*node)(nil)
	_ fs.NodeCreater   = (*node)(nil)
	_ fs.NodeMkdirer   = (*node)(nil)
	_ fs.NodeMknoder   = (*node)(nil)
	_ fs.NodeUnlinker  = (*node)(nil)
	_ fs.NodeRmdirer   = (*node)(nil)
	_ fs.NodeRenamer   = (*node)(nil)
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
	_ fs.NodeWriter    = (*node)(nil)
	_ fs.NodeFsyncer   = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
	_ fs.NodeStatfser  = (*node)(nil)
)

// lock takes the disk's lock, or reports that the power is off.
func (n *node) lock() syscall.Errno {
	n.disk.mu.Lock()
	if n.disk.off {
		n.disk.mu.Unlock()
		return errOff
	}
	return 0
}

func (n *node) unlock() { n.disk.mu.Unlock() }

func (f *file) attr(out *fuse.Attr) {
	out.Ino, out.Mode, out.Nlink = f.ino, f.mode, 1
	out.Size = uint64(len(f.data))
	out.Blocks, out.Blksize = (out.Size+511)/512, pageSize
}

// child makes the kernel's node of a file.
func (n *node) child(ctx context.Context, f *file, out *fuse.EntryOut) *fs.Inode {
	f.attr(&out.Attr)
	return n.NewInode(ctx, &node{disk: n.disk, file: f}, fs.StableAttr{Mode: f.mode & syscall.S_IFMT, Ino: f.ino})
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.lock(); errno != 0 {
		return nil, errno
	}
	defer n.unlock()
	f := n.file.names[name]
	if f == nil {
		return nil, syscall.ENOENT
	}
	return n.child(ctx, f, out), 0
}

func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	if errno := n.lock(); errno != 0 {
		return nil, errno
	}
	defer n.unlock()
	var list []fuse.DirEntry
	for name, f := range n.file.names {
		list = append(list, fuse.DirEntry{Name: name, Mode: f.mode, Ino: f.ino})
	}
	return fs.NewListDirStream(list), 0
}

// add puts a new file under a name.
func (n *node) add(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.lock(); errno != 0 {
		return nil, errno
	}
	defer n.unlock()
	if n.file.names[name] != nil {
		return nil, syscall.EEXIST
	}
	if n.disk.full {
		return nil, syscall.ENOSPC
	}
	f, dir := n.disk.newFile(mode), n.file
	dir.names[name] = f
	n.disk.journal = append(n.disk.journal, change{dirs: []*file{dir}, do: func() { dir.diskNames[name] = f }})
	return n.child(ctx, f, out), 0
}

func (n *node) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, errno := n.add(ctx, name, syscall.S_IFREG|mode&0o7777, out)
	return inode, nil, fuse.FOPEN_KEEP_CACHE, errno
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, syscall.S_IFDIR|mode&0o7777, out)
}

// Mknod makes sockets, such as the one that the daemon listens on.
func (n *node) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, mode, out)
}

func (n *node) remove(name string) syscall.Errno {
	if errno := n.lock(); errno != 0 {
		return errno
	}
	defer n.unlock()
	dir := n.file
	f := dir.names[name]
	if f == nil {
		return syscall.ENOENT
	}
	if len(f.names) > 0 {
		return syscall.ENOTEMPTY
	}
	delete(dir.names, name)
	n.disk.journal = append(n.disk.journal, change{dirs: []*file{dir}, do: func() {
		if dir.diskNames[name] == f {
			delete(dir.diskNames, name)
		}
	}})
	return 0
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno { return n.remove(name) }
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno  { return n.remove(name) }

func (n *node) Rename(_ context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if errno := n.lock(); errno != 0 {
		return errno
	}
	defer n.unlock()
	to, ok := parent.(*node)
	if !ok || flags != 0 {
		return syscall.ENOSYS
	}
	from, dir := n.file, to.file
	f := from.names[name]
	if f == nil {
		return syscall.ENOENT
	}
	delete(from.names, name)
	dir.names[newName] = f
	n.disk.journal = append(n.disk.journal, change{dirs: []*file{from, dir}, do: func() {
		if from.diskNames[name] == f {
			delete(from.diskNames, name)
		}
		dir.diskNames[newName] = f
	}})
	return 0
}

func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.lock(); errno != 0 {
		return nil, 0, errno
	}
	defer n.unlock()
	// The kernel's cache stays on: SQLite maps its -shm file into memory, which
	// direct I/O does not allow.
	return nil, fuse.FOPEN_KEEP_CACHE, 0
}

func (n *node) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if errno := n.lock(); errno != 0 {
		return nil, errno
	}
	defer n.unlock()
	if off >= int64(len(n.file.data)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(dest[:copy(dest, n.file.data[off:])]), 0
}

func (n *node) Write(_ context.Context, _ fs.FileHandle, b []byte, off int64) (uint32, syscall.Errno) {
	if errno := n.lock(); errno != 0 {
		return 0, errno
	}
	defer n.unlock()
	if off+int64(len(b)) > maxFile {
		return 0, syscall.EFBIG
	}
	if n.disk.full && off+int64(len(b)) > int64(len(n.file.data)) {
		return 0, syscall.ENOSPC
	}
	n.file.write(b, off)
	return uint32(len(b)), 0
}

// Fsync makes a file, or the names of a directory, durable.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	n.disk.drag()
	if errno := n.lock(); errno != 0 {
		return errno
	}
	defer n.unlock()
	n.disk.syncs++
	if n.file.names != nil {
		n.disk.syncDir(n.file)
		return 0
	}
	n.file.sync()
	return 0
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if errno := n.lock(); errno != 0 {
		return errno
	}
	defer n.unlock()
	n.file.attr(&out.Attr)
	return 0
}

func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if errno := n.lock(); errno != 0 {
		return errno
	}
	defer n.unlock()
	if size, ok := in.GetSize(); ok {
		if size > maxFile {
			return syscall.EFBIG
		}
		if n.disk.full && int64(size) > int64(len(n.file.data)) {
			return syscall.ENOSPC
		}
		n.file.resize(int64(size))
	}
	if mode, ok := in.GetMode(); ok {
		n.file.mode = n.file.mode&syscall.S_IFMT | mode&0o7777
	}
	n.file.attr(&out.Attr)
	return 0
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	out.Bsize, out.NameLen = pageSize, 255
	out.Blocks, out.Bfree, out.Bavail = 1<<20, 1<<20, 1<<20
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	if n.disk.full {
		out.Bfree, out.Bavail = 0, 0
	}
	out.Files, out.Ffree = 1<<20, 1<<20
	return 0
}
