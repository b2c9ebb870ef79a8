package kinds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/volumes/claims"
	"monopod.dev/monopod/internal/host/mount"
)

// nfs is a directory of an NFS server, mounted by the kernel's own client, without a program of the host.
//
// A server may be silent for good. So nothing that it is asked for is waited for without an end: it is mounted where nobody sees it, by a goroutine that is given up; a look at whether it is there asks the list of mounts;
// and who unmounts it waits for what was written to reach the server, but no longer than a kubelet.
type nfs struct {
	still
	servers *nfsServers
}

// Facts implements Kind.
func (*nfs) Facts() Facts { return Facts{Holds: true} }

// Setup implements Kind.
func (n *nfs) Setup(ctx context.Context, v *Volume) error {
	pod, name := placeOf(v.Dir)
	if is, err := mount.Listed(v.Dir); err != nil || is {
		return err
	}
	src := v.Spec.NFS
	// On record, though no claim stands for it, so that nobody who looks at the pod's directory waits for the server.
	r := claims.Record{Source: claims.NFS, Path: nfsSource(src.Server, src.Path), Mounted: true, ReadOnly: src.ReadOnly}
	r.VolumeUID = types.UID(r.Path)
	if err := claims.Write(pod, name, r); err != nil {
		return err
	}
	return n.servers.mount(ctx, share{server: src.Server, path: src.Path, readOnly: src.ReadOnly}, v.Dir)
}

// Mount implements Kind.
func (*nfs) Mount(v *Volume) (Source, error) {
	is, err := mount.Listed(v.Dir)
	if err == nil && !is {
		err = fmt.Errorf("volume %s, %s, is not mounted at %s", v.Spec.Name, nfsSource(v.Spec.NFS.Server, v.Spec.NFS.Path), v.Dir)
	}
	if err != nil {
		return Source{}, err
	}
	return Source{Path: v.Dir, ReadOnly: v.Spec.NFS.ReadOnly}, nil
}

// Teardown implements Kind.
func (n *nfs) Teardown(ctx context.Context, l *Left) error {
	r, _ := claims.Read(placeOf(l.Dir)) // without it the server is not known
	return n.servers.unmount(ctx, r.Path, l.Dir)
}

// nfsOfClaim is the nfs volume of a claim.
type nfsOfClaim struct {
	*bound
	servers *nfsServers
}

func (n *nfsOfClaim) share() share {
	src := n.volume.Spec.NFS
	return share{server: src.Server, path: src.Path, readOnly: n.mayOnly || src.ReadOnly, options: n.volume.Spec.MountOptions}
}

func (n *nfsOfClaim) record() claims.Record {
	src := n.volume.Spec.NFS
	return claims.Record{Source: claims.NFS, Path: nfsSource(src.Server, src.Path), Mounted: true, ReadOnly: n.share().readOnly}
}

func (n *nfsOfClaim) make(ctx context.Context, dir string) error {
	if n.block() {
		return fmt.Errorf("volume %s has volumeMode Block, which nfs volumes cannot have", n.volume.Name)
	}
	return n.servers.mount(ctx, n.share(), dir)
}

// share is what is mounted of a server.
type share struct {
	server, path string
	readOnly     bool
	// options are those of mount(8) and nfs(5).
	options []string
}

func nfsSource(server, dir string) string {
	if strings.Contains(server, ":") && !strings.HasPrefix(server, "[") {
		server = "[" + server + "]"
	}
	return server + ":" + path.Clean(dir)
}

// nfsPatience is how long a server may take to answer at first.
const nfsPatience = 90 * time.Second

// How many mounts may wait for the answers of servers at a time, and how many of them for one. The same of what is unmounted: it is more, because a pod that goes waits for it, and because the
// kernel can be told to give it up.
const (
	nfsCalls, nfsCallsOfServer = 64, 8
	unmounts, unmountsOfServer = 256, 64
)

// nfsServers mounts what servers have.
type nfsServers struct {
	// negotiate is nfsNegotiate, but in tests.
	negotiate func(source string, options []string) (*mount.Detached, error)
	// mounts and unmounts are the calls that wait for servers: the mounts by a server's address, since it may have many names, the others by its name.
	mounts, unmounts *calls

	mu     sync.Mutex      // guards what follows
	silent map[string]bool // what a server has not answered to yet, though nobody waits for it any more
}

func newNFSServers() *nfsServers {
	return &nfsServers{negotiate: nfsNegotiate, mounts: newCalls(nfsCalls, nfsCallsOfServer), unmounts: newCalls(unmounts, unmountsOfServer), silent: map[string]bool{}}
}

// nfsVersions are those that are tried where the options name none. NFS 3 needs programs of the host for its locks: who wants it says so, with nolock.
var nfsVersions = []string{"4.2", "4.1", "4.0"}

// mount mounts a share at a directory, which it makes.
func (s *nfsServers) mount(ctx context.Context, what share, dir string) error {
	source := nfsSource(what.server, what.path)
	err := s.attach(ctx, what, source, dir)
	if err != nil {
		return fmt.Errorf("mount %s: %w", source, err)
	}
	return nil
}

func (s *nfsServers) attach(ctx context.Context, what share, source, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, nfsPatience)
	defer cancel()
	ofMount, options := nfsOptions(what.options)
	addresses, err := nfsAddresses(ctx, what.server)
	if err != nil {
		return err
	}
	made, err := s.ask(ctx, addresses[0], source, slices.Concat(options, addresses))
	if err != nil {
		return err
	}
	defer made.Close()
	if what.readOnly {
		ofMount = append(ofMount, "ro")
	}
	if err := made.Options(ofMount...); err != nil {
		return err
	}
	if err := mkdir(dir, 0o750); err != nil {
		return err
	}
	return made.Attach(dir)
}

// ask has the kernel ask the server, and waits for it as long as ctx lasts. There is one such call a share that nobody waits for.
func (s *nfsServers) ask(ctx context.Context, server, source string, options []string) (*mount.Detached, error) {
	s.mu.Lock()
	busy := s.silent[source]
	s.mu.Unlock()
	if busy {
		return nil, errors.New("the server has not answered to the attempt before")
	}
	end, err := s.mounts.begin(ctx, server)
	if err != nil {
		return nil, err
	}
	type answer struct {
		made *mount.Detached
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		made, err := s.negotiate(source, options)
		end()
		answers <- answer{made, err}
	}()
	select {
	case a := <-answers:
		return a.made, a.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.silent[source] = true
	s.mu.Unlock()
	go func() {
		if a := <-answers; a.made != nil {
			a.made.Close()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.silent, source)
	}()
	return nil, fmt.Errorf("the server does not answer: %w", ctx.Err())
}

// nfsNegotiate mounts with the highest version that the server speaks.
func nfsNegotiate(source string, options []string) (made *mount.Detached, err error) {
	for _, o := range options {
		name, _, _ := strings.Cut(o, "=")
		if slices.Contains([]string{"vers", "nfsvers", "minorversion", "v3", "v4", "v4.0", "v4.1", "v4.2"}, name) {
			return mount.Filesystem("nfs", source, options)
		}
	}
	for _, version := range nfsVersions {
		made, err = mount.Filesystem("nfs", source, append([]string{"vers=" + version}, options...))
		if !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, unix.EINVAL) {
			return made, err
		}
	}
	return made, err
}

// nfsOptions parts mount options: those of the mount, and those that the kernel's client knows. Those for programs that mount at boot, or in the background, are left out.
func nfsOptions(all []string) (ofMount, ofClient []string) {
	var split []string
	for _, o := range all { // one may hold several, as on a command line
		split = append(split, strings.Split(o, ",")...)
	}
	ofMount, others := mount.Flags(split)
	for _, o := range others {
		name, _, _ := strings.Cut(o, "=")
		if o == "" || strings.HasPrefix(name, "x-") || slices.Contains([]string{"bg", "fg", "retry", "_netdev", "auto", "noauto", "nofail", "user", "nouser", "users", "owner", "comment"}, name) {
			continue
		}
		ofClient = append(ofClient, o)
	}
	return ofMount, ofClient
}

// nfsAddresses are the options by which the kernel reaches a server, whose name it does not look up, and by which the server reaches this node.
func nfsAddresses(ctx context.Context, server string) ([]string, error) {
	found, err := net.DefaultResolver.LookupIPAddr(ctx, strings.Trim(server, "[]"))
	if err != nil {
		return nil, fmt.Errorf("look up the server: %w", err)
	}
	if len(found) == 0 {
		return nil, errors.New("the server has no address")
	}
	options := []string{"addr=" + found[0].String()}
	// It sends nothing: it finds out by which address this node would reach the server.
	if c, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(found[0].String(), "2049")); err == nil {
		if at, ok := c.LocalAddr().(*net.UDPAddr); ok {
			options = append(options, "clientaddr="+at.IP.String())
		}
		c.Close()
	}
	return options, nil
}

// unmountPatience is how long what was written has to reach the server when a volume is unmounted, as with a kubelet.
const unmountPatience = time.Minute

// unmount takes away what is mounted at a directory. Where the server is silent what waits for it is ended with an error (MNT_FORCE), after a while.
func (s *nfsServers) unmount(ctx context.Context, source, dir string) error {
	for {
		is, err := mount.Listed(dir)
		if err != nil || !is {
			return err
		}
		if err := s.unmountOne(ctx, source, dir); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
}

func (s *nfsServers) unmountOne(ctx context.Context, source, dir string) error {
	within, cancel := context.WithTimeout(ctx, unmountPatience)
	defer cancel()
	server, _, _ := strings.Cut(source, ":/")
	end, err := s.unmounts.begin(within, server)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer func() { go func() { running.Wait(); end() }() }()
	done := make(chan error, 2)
	running.Go(func() { done <- mount.Unmount(dir) })
	select {
	case err := <-done:
		return err
	case <-within.Done():
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	running.Go(func() {
		// It has no place any more, perhaps, and is not waited for.
		_ = unix.Unmount(dir, unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW)
		err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) {
			err = nil
		}
		done <- err
	})
	again, cancelAgain := context.WithTimeout(ctx, unmountPatience)
	defer cancelAgain()
	select {
	case err := <-done:
		return err
	case <-again.Done():
		return fmt.Errorf("the server does not answer; it is tried again: %w", again.Err())
	}
}
