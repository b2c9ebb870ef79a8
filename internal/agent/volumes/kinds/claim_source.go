package kinds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/volumes/claims"
	"monopod.dev/monopod/internal/host/mount"
)

// sourceOf is what the volume of a claim is made from. Kinds that need a driver are refused by the name of the one that serves them.
func (c *claim) sourceOf(b *bound) (source, error) {
	switch s := &b.volume.Spec.PersistentVolumeSource; {
	case s.Local != nil:
		return &local{bound: b, tell: c.cfg.Tell}, nil
	case s.HostPath != nil:
		return &pathOfHost{b}, nil
	case s.NFS != nil:
		return &nfsOfClaim{b, c.servers}, nil
	default:
		kind, driver := driverOf(s)
		return nil, fmt.Errorf("volume %s is of the kind %s, which this node does not mount itself: it needs %s", b.volume.Name, kind, driver)
	}
}

// driverOf names a kind of volumes, and who serves it.
func driverOf(s *v1.PersistentVolumeSource) (kind, driver string) {
	switch {
	case s.CSI != nil:
		return "csi", fmt.Sprintf("the CSI driver %s, and CSI drivers are not supported yet", s.CSI.Driver)
	case s.ISCSI != nil:
		return "iscsi", "the CSI driver iscsi.csi.k8s.io"
	case s.FC != nil:
		return "fc", "the CSI driver fc.csi.k8s.io"
	case s.RBD != nil:
		return "rbd", "the CSI driver rbd.csi.ceph.com"
	case s.CephFS != nil:
		return "cephfs", "the CSI driver cephfs.csi.ceph.com"
	case s.AWSElasticBlockStore != nil:
		return "awsElasticBlockStore", "the CSI driver ebs.csi.aws.com"
	case s.GCEPersistentDisk != nil:
		return "gcePersistentDisk", "the CSI driver pd.csi.storage.gke.io"
	case s.AzureDisk != nil:
		return "azureDisk", "the CSI driver disk.csi.azure.com"
	case s.AzureFile != nil:
		return "azureFile", "the CSI driver file.csi.azure.com"
	case s.Cinder != nil:
		return "cinder", "the CSI driver cinder.csi.openstack.org"
	case s.VsphereVolume != nil:
		return "vsphereVolume", "the CSI driver csi.vsphere.vmware.com"
	case s.PortworxVolume != nil:
		return "portworxVolume", "the CSI driver pxd.portworx.com"
	case s.FlexVolume != nil:
		return "flexVolume", fmt.Sprintf("the FlexVolume driver %s, and such drivers are not supported", s.FlexVolume.Driver)
	}
	return "that was removed from Kubernetes", "another volume"
}

// pathOfHost is a hostPath volume: the path itself, of which nothing is changed.
type pathOfHost struct{ *bound }

func (p *pathOfHost) record() claims.Record {
	return claims.Record{Source: claims.HostPath, Path: p.volume.Spec.HostPath.Path, Block: p.block()}
}

func (p *pathOfHost) make(context.Context, string) error {
	if p.block() {
		return isBlockDevice(p.volume.Spec.HostPath.Path)
	}
	return checkHostPath(p.volume.Spec.HostPath)
}

// local is a local volume: a directory of this node, a block device, or the file system on one.
type local struct {
	*bound
	tell func(pod *v1.Pod, kind, reason, message string)
	// device: its file system is on a block device, and may have options of its own.
	device bool
}

func (l *local) path() string { return l.volume.Spec.Local.Path }

func (l *local) record() claims.Record {
	return claims.Record{Source: claims.Local, Path: l.path(), Mounted: !l.block(), Block: l.block()}
}

// make mounts the directory, or the file system of the device. What is not there is not made: it may be the place of a disk that is not.
func (l *local) make(ctx context.Context, dir string) error {
	if l.block() {
		return isBlockDevice(l.path())
	}
	made, err := l.mounted(ctx)
	if err != nil {
		return err
	}
	defer made.Close()
	if err := l.giveToGroup(ctx, made, dir); err != nil {
		return err
	}
	return l.attach(made, dir)
}

// mounted is a mount of the volume that has no place yet.
func (l *local) mounted(ctx context.Context) (*mount.Detached, error) {
	fd, err := unix.Open(l.path(), unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("path %q of the local volume %s does not exist on this node: it is not made anew; is its disk mounted?", l.path(), l.volume.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("local volume %s: %w", l.volume.Name, &os.PathError{Op: "open", Path: l.path(), Err: err})
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("local volume %s: %w", l.volume.Name, &os.PathError{Op: "stat", Path: l.path(), Err: err})
	}
	var made *mount.Detached
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err := l.notMounted(fd, &st); err != nil {
			return nil, err
		}
		made, err = mount.Clone(fd, l.use.receives)
	case unix.S_IFBLK:
		l.device = true
		made, err = l.ofDevice(ctx)
	default:
		return nil, fmt.Errorf("path %q of the local volume %s is neither a directory nor a block device", l.path(), l.volume.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("local volume %s at %s: %w", l.volume.Name, l.path(), err)
	}
	return made, nil
}

// notMounted refuses an empty directory that nobody may look into (mode 0): by that whoever mounts a volume there, as our own provisioner does images, says that it is not mounted. A pod would
// take it for its volume and begin anew.
func (l *local) notMounted(fd int, st *unix.Stat_t) error {
	if st.Mode&0o7777 != 0 {
		return nil
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("path %q of the local volume %s is an empty directory with the mode 0: what belongs there is not mounted", l.path(), l.volume.Name)
	}
	return err
}

// giveToGroup gives the volume's files to the pod's group, before anybody of the pod sees them. While other pods of the node have it, it stays as it is for them;
// those that are to have it have seen nothing of it yet. The caller has the volume's lock.
func (l *local) giveToGroup(ctx context.Context, made *mount.Detached, dir string) error {
	gid := fsGroup(l.pod)
	if gid < 0 || l.mayOnly {
		return nil
	}
	root, err := made.Root()
	if err != nil {
		return err
	}
	defer root.Close()
	if is, err := given(root, gid); err != nil || is && mismatchOnly(l.pod) {
		return err
	}
	pod, _ := placeOf(dir)
	if shared, err := hadByOthers(pod, l.volume.UID, func(r claims.Record) bool { return !r.Pending }); err != nil || shared {
		return errors.Join(err, l.tellShared(root, gid))
	}
	err = giveToGroup(ctx, root, gid, func(files int) {
		l.tell(l.pod, v1.EventTypeWarning, "VolumePermissionChangeInProgress", fmt.Sprintf("Setting volume ownership for %s, processed %d files.", l.name, files))
	})
	var not *notGiven
	if errors.As(err, &not) {
		l.tell(l.pod, v1.EventTypeWarning, "VolumePermissionChangeFailed", fmt.Sprintf("Setting volume ownership for %s: %v", l.name, err))
		return nil
	}
	return err
}

// tellShared tells of a volume that other pods have with another group.
func (l *local) tellShared(root *os.File, gid int) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return err
	}
	if st.Gid != uint32(gid) {
		l.tell(l.pod, v1.EventTypeWarning, "AlreadyMountedVolume",
			fmt.Sprintf("The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", gid, l.name, st.Gid))
	}
	return nil
}

// attach gives what was mounted its place in the pod, with the options of the volume.
func (l *local) attach(made *mount.Detached, dir string) error {
	options, others := mount.Flags(l.volume.Spec.MountOptions)
	if len(others) > 0 && !l.device {
		return fmt.Errorf("mountOptions %q of the local volume %s are none that a mounted directory can have", others, l.volume.Name)
	}
	if l.mayOnly {
		options = append(slices.Clip(options), "ro")
	}
	if err := made.Options(options...); err != nil {
		return fmt.Errorf("mountOptions of the local volume %s: %w", l.volume.Name, err)
	}
	if err := mkdir(dir, 0o750); err != nil {
		return err
	}
	return made.Attach(dir)
}

// isBlockDevice says why a path is no block device.
func isBlockDevice(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeDevice == 0 || info.Mode()&os.ModeCharDevice != 0 {
		return fmt.Errorf("%s is no block device, and the volume has volumeMode Block: it has mode %s", path, info.Mode())
	}
	return nil
}
