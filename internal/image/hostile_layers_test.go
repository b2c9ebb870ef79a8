package image_test

import (
	"archive/tar"
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// TestHostileLayers: layers whose entries are meant to do harm.
func TestHostileLayers(t *testing.T) {
	both(t, func(f *field) []hostileCase {
		var all []hostileCase
		for _, group := range [][]layerCase{pathCases(f), linkCases(f), whiteoutCases(), kindCases(), nameCases(), lyingCases()} {
			for _, c := range group {
				plain := c.raw
				if plain == nil {
					plain = rawTar(c.entries...)
				}
				img := rawImage{layers: []rawLayer{{plain: belowHostile}, {plain: plain}}}
				all = append(all, hostileCase{c.name, img, c.want})
			}
		}
		return all
	})
}

type layerCase struct {
	name    string
	entries []ent
	raw     []byte // instead of entries
	want    expectation
}

// belowHostile is the layer below each hostile one.
var belowHostile = rawTar(ent{name: "data", kind: tar.TypeDir, mode: 0o750, uid: 33}, ent{name: "data/kept", data: "below"},
	ent{name: "way", kind: tar.TypeSymlink, link: "data", mode: 0o777})

func sortedWith(lines []string, more string) []string {
	out := append([]string{more}, lines...)
	slices.SortFunc(out, func(a, b string) int { // as a walk goes: the entries of a directory by name
		return slices.Compare(strings.Split(strings.TrimSuffix(a, "/"), "/"), strings.Split(strings.TrimSuffix(b, "/"), "/"))
	})
	return out
}

var isResourceExhausted = errdefs.IsResourceExhausted

func reg(name, data string) ent { return ent{name: name, data: data} }
func dirEnt(name string) ent    { return ent{name: name, kind: tar.TypeDir} }
func sym(name, target string) ent {
	return ent{name: name, kind: tar.TypeSymlink, link: target, mode: 0o777}
}
func hard(name, target string) ent {
	return ent{name: name, kind: tar.TypeLink, link: target}
}

func pathCases(f *field) []layerCase {
	secret := f.outside + "/secret"
	inside := strings.Split(strings.TrimPrefix(f.outside, "/"), "/")
	var made []string // the same path within the layer
	for i := range inside {
		made = append(made, strings.Join(inside[:i+1], "/")+"/")
	}
	made = append(made, strings.Join(inside, "/")+"/secret=x")
	up := strings.Repeat("../", 40)
	return []layerCase{
		{name: "dots", entries: []ent{reg(up+"etc/passwd", "x")}, want: tree("etc/", "etc/passwd=x")},
		{name: "dots within", entries: []ent{reg("a/../../../b/./c//d", "x")}, want: tree("b/", "b/c/", "b/c/d=x")},
		{name: "dots at the end", entries: []ent{dirEnt("a/b/.."), dirEnt("..")}, want: tree("a/")},
		{name: "absolute", entries: []ent{reg("/etc/passwd", "x")}, want: tree("etc/", "etc/passwd=x")},
		{name: "absolute, of this machine", entries: []ent{reg(secret, "x")}, want: tree(made...)},
		{name: "the root", entries: []ent{{name: "./", kind: tar.TypeDir, mode: 0o777, uid: 7}, {name: "/", kind: tar.TypeDir, mode: 0o777, uid: 7}}, want: tree()},
		{name: "the root as a link", entries: []ent{sym(".", f.outside), reg("secret", "x")}, want: tree("secret=x")},
		{name: "the root as a file", entries: []ent{reg("..", "x")}, want: tree()},
		{name: "through a link", entries: []ent{sym("l", up+strings.TrimPrefix(f.outside, "/")), reg("l/secret", "x")}, want: tree(append([]string{}, sortedWith(made, "l->"+up+strings.TrimPrefix(f.outside, "/"))...)...)},
		{name: "through an absolute link", entries: []ent{sym("l", f.outside), reg("l/secret", "x")}, want: tree(sortedWith(made, "l->"+f.outside)...)},
		{name: "over a link", entries: []ent{sym("l", secret), reg("l", "x")}, want: tree("l=x")},
		{name: "a directory over a link", entries: []ent{sym("l", f.outside), dirEnt("l"), reg("l/secret", "x")}, want: tree("l/", "l/secret=x")},
		{name: "through a chain of links", entries: []ent{sym("a", "b/c"), dirEnt("b"), sym("b/c", "/b/d"), sym("b/d", "../.."), reg("a/x", "x")}, want: tree("a->b/c", "b/", "b/c->/b/d", "b/d->../..", "x=x")},
		{name: "through a magic link", entries: []ent{sym("l", "/proc/self/root"), reg("l/etc/x", "x")}, want: tree("l->/proc/self/root", "proc/", "proc/self/", "proc/self/root/", "proc/self/root/etc/", "proc/self/root/etc/x=x")},
		{name: "through a descriptor", entries: []ent{sym("l", "/proc/self/fd/3"), reg("l", "x"), reg("proc/self/fd/3/x", "y")}, want: tree("l=x", "proc/", "proc/self/", "proc/self/fd/", "proc/self/fd/3/", "proc/self/fd/3/x=y")},
		{name: "links in a circle", entries: []ent{sym("a", "b"), sym("b", "a"), reg("a/x", "x")}, want: refused("a/", "too many levels")},
		{name: "a link to itself", entries: []ent{sym("a", "a"), reg("a/x", "x")}, want: refused("too many levels")},
		{name: "through a link of the layer below", entries: []ent{reg("way/new", "x")}, want: tree("way/", "way/new=x")},
		{name: "a parent that is replaced", entries: []ent{dirEnt("d"), reg("d/a", "x"), sym("d", f.outside), reg("d/secret", "x")}, want: tree(sortedWith(made, "d->"+f.outside)...)},
		{name: "a parent that is a file", entries: []ent{reg("d", "x"), reg("d/a", "x")}, want: refused("d/", "not a directory")},
	}
}

func linkCases(f *field) []layerCase {
	secret := f.outside + "/secret"
	up := strings.Repeat("../", 40)
	return []layerCase{
		{name: "hard link out", entries: []ent{hard("h", up+strings.TrimPrefix(secret, "/"))}, want: refused(`"h"`, "no such file")},
		{name: "hard link to an absolute path", entries: []ent{hard("h", secret)}, want: refused("no such file")},
		{name: "hard link to a program of this machine", entries: []ent{hard("h", "/bin/sh"), reg("h", "x")}, want: refused("no such file")},
		{name: "hard link through a link", entries: []ent{sym("l", f.outside), hard("h", "l/secret"), reg("h", "x")}, want: refused("no such file")},
		{name: "hard link to a link", entries: []ent{sym("l", secret), hard("h", "l"), {name: "h", data: "x", mode: 0o777}}, want: tree("h=x 0777", "l->"+secret)},
		{name: "hard link to a link, then through it", entries: []ent{sym("l", f.outside), hard("h", "l"), hard("h2", "h/secret")}, want: refused("no such file")},
		{name: "mode and owner through a hard link", entries: []ent{reg("a", "x"), {name: "h", kind: tar.TypeLink, link: "a", mode: 0o4777, uid: 5}}, want: tree("a=x <2>", "h=x <2>")},
		{name: "hard link to a later entry", entries: []ent{hard("h", "a"), reg("a", "x")}, want: refused("no such file")},
		{name: "hard link to the layer below", entries: []ent{hard("h", "data/kept")}, want: refused("no such file")},
		{name: "hard link to a directory", entries: []ent{dirEnt("d"), hard("h", "d")}, want: refused("is a directory")},
		{name: "hard link to the root", entries: []ent{hard("h", "/")}, want: refused("the layer itself")},
		{name: "hard link to its own directory", entries: []ent{reg("d/x", "x"), hard("d/h", "d/.")}, want: refused("is a directory")},
		{name: "hard link to itself", entries: []ent{reg("a", "x"), hard("a", "a")}, want: tree("a=x")},
		{name: "hard link to itself, which is not there", entries: []ent{hard("a", "a")}, want: refused("no such file")},
		{name: "hard link to a name of nothing", entries: []ent{hard("h", "")}, want: refused("the layer itself")},
		{name: "hard link with a payload", entries: []ent{reg("a", "x"), {name: "h", kind: tar.TypeLink, link: "a", change: func(b []byte) { copy(b[124:], "00000001000\x00") }}}, want: tree("a=x <2>", "h=x <2>")},
		{name: "hard link to a device", entries: []ent{{name: "null", kind: tar.TypeChar, major: 1, minor: 3, mode: 0o666}, hard("h", "null")}, want: tree("h(c 1,3) 0666", "null(c 1,3) 0666")},
		{name: "a link with a name of nothing", entries: []ent{sym("l", "")}, want: refused(`"l"`)},
		{name: "a link of 5000 bytes", entries: []ent{sym("l", strings.Repeat("a/", 2500))}, want: refused("file name too long")},
	}
}

func whiteoutCases() []layerCase {
	return []layerCase{
		{name: "whiteouts", entries: []ent{reg("data/.wh.kept", ""), reg(".wh.way", "")}, want: tree("data/ 0750 33:0", "data/kept!", "way!")},
		{name: "a whiteout of dots", entries: []ent{reg("a/.wh..", "")}, want: refused("a whiteout must name")},
		{name: "a whiteout of two dots", entries: []ent{reg("a/.wh...", "")}, want: refused("a whiteout must name")},
		{name: "a whiteout of nothing", entries: []ent{reg("a/.wh.", "")}, want: refused("a whiteout must name")},
		{name: "a whiteout of dots as a directory", entries: []ent{dirEnt("a/.wh../x")}, want: tree("a/", "a/.wh../", "a/.wh../x/")},
		{name: "a whiteout through a link", entries: []ent{sym("l", "../../../etc"), reg("l/.wh.passwd", "")}, want: tree("etc/", "etc/passwd!", "l->../../../etc")},
		{name: "a whiteout through a link of the layer below", entries: []ent{reg("way/.wh.kept", "")}, want: tree("way/", "way/kept!")},
		{name: "a whiteout that is a link", entries: []ent{sym(".wh.way", "/etc/passwd")}, want: tree("way!")},
		{name: "a whiteout that is a directory", entries: []ent{dirEnt(".wh.way")}, want: tree("way!")},
		{name: "a whiteout with a payload", entries: []ent{reg(".wh.way", strings.Repeat("x", 3000))}, want: tree("way!")},
		{name: "a whiteout of a whiteout", entries: []ent{reg(".wh..wh.x", "")}, want: tree(".wh.x!")},
		{name: "a whiteout of what the layer has", entries: []ent{reg("a", "x"), reg(".wh.a", "")}, want: tree("a=x")},
		{name: "a whiteout of a link of the layer", entries: []ent{sym("a", "/etc"), reg(".wh.a", "")}, want: tree("a->/etc")},
		{name: "a whiteout, then the file", entries: []ent{reg(".wh.a", ""), reg("a", "x")}, want: tree("a=x")},
		{name: "a whiteout, then below it", entries: []ent{reg(".wh.data", ""), reg("data/new", "x")}, want: tree(`data/ 0750 33:0 {trusted.overlay.opaque="y"}`, "data/new=x")},
		{name: "an opaque directory", entries: []ent{reg("data/.wh..wh..opq", ""), reg("data/new", "x")}, want: tree(`data/ 0750 33:0 {trusted.overlay.opaque="y"}`, "data/new=x")},
		{name: "an opaque directory through a link", entries: []ent{sym("l", "/"), reg("l/.wh..wh..opq", "")}, want: tree(`./ {trusted.overlay.opaque="y"}`, "l->/")},
		{name: "opaque as a directory", entries: []ent{dirEnt("d/.wh..wh..opq")}, want: tree(`d/ {trusted.overlay.opaque="y"}`)},
		{name: "below opaque", entries: []ent{reg("d/.wh..wh..opq/x", "x")}, want: tree("d/", "d/.wh..wh..opq/", "d/.wh..wh..opq/x=x")},
		{name: "docker's metadata", entries: []ent{dirEnt(".wh..wh.plnk"), reg(".wh..wh.aufs", "")}, want: tree(".wh.aufs!", ".wh.plnk!")},
		{name: "the overlay's own whiteout", entries: []ent{{name: "way", kind: tar.TypeChar}}, want: tree("way! 0644")},
		{name: "the overlay's own attribute", entries: []ent{{name: "data", kind: tar.TypeDir, xattrs: map[string]string{"trusted.overlay.opaque": "y", "trusted.overlay.redirect": "/etc", "trusted.overlay.metacopy": ""}}}, want: tree("data/")},
	}
}

func kindCases() []layerCase {
	capability := "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	attributes := func(kind byte) ent {
		return ent{name: "f", kind: kind, link: map[byte]string{tar.TypeSymlink: "x"}[kind], xattrs: map[string]string{"security.capability": capability, "security.selinux": "system_u:object_r:bin_t:s0",
			"security.apparmor": "x", "security.evm": "x", "trusted.x": "x", "user.x": "x", "user.overlay.opaque": "y", "user.overlay.whiteout": ""}}
	}
	return []layerCase{
		{name: "devices", entries: []ent{{name: "mem", kind: tar.TypeChar, major: 1, minor: 1, mode: 0o666}, {name: "sda", kind: tar.TypeBlock, major: 8, mode: 0o666}, {name: "p", kind: tar.TypeFifo}},
			want: tree("mem(c 1,1) 0666", "p|", "sda(b 8,0) 0666")},
		{name: "a device that is none", entries: []ent{{name: "d", kind: tar.TypeChar, major: 5000}}, want: refused("device number 5000:0")},
		{name: "a device that overflows", entries: []ent{{name: "d", kind: tar.TypeBlock, minor: 1 << 20}}, want: refused("device number 0:1048576")},
		{name: "a socket", entries: []ent{{name: "s", kind: 's'}}, want: refused(`"s"`, "its type")},
		{name: "a contiguous file", entries: []ent{{name: "s", kind: '7', data: "x"}}, want: refused(`"s"`, "its type")},
		{name: "a directory of GNU dumps", entries: []ent{{name: "s", kind: 'D'}}, want: refused("its type")},
		{name: "an unknown type", entries: []ent{{name: "s", kind: 0xff}}, want: refused("its type")},
		{name: "set-user-ID", entries: []ent{{name: "su", mode: 0o6755, uid: 3, gid: 4, data: "x"}, {name: "t", kind: tar.TypeDir, mode: 0o1777}}, want: tree("su=x 6755 3:4", "t/ 1777")},
		{name: "a type in the mode", entries: []ent{{name: "f", mode: 0o060000 | 0o640, data: "x"}}, want: tree("f=x 0640")},
		{name: "attributes of a file", entries: []ent{attributes(tar.TypeReg)}, want: tree(`f= {security.capability="` + `\x01\x00\x00\x02\x00 \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00` + `"} {user.overlay.opaque="y"} {user.overlay.whiteout=""} {user.x="x"}`)},
		{name: "an attribute without a name", entries: []ent{{name: "f", xattrs: map[string]string{"": "x"}}}, want: refused(`"f"`, "attribute")},
		{name: "an attribute of no namespace", entries: []ent{{name: "f", xattrs: map[string]string{"x": "x"}}}, want: tree("f=")},
		{name: "an attribute with a long name", entries: []ent{{name: "f", xattrs: map[string]string{"user." + strings.Repeat("x", 300): "x"}}}, want: refused(`attribute "user.xxx`)},
		{name: "an attribute of 100 KB", entries: []ent{{name: "f", xattrs: map[string]string{"user.x": strings.Repeat("x", 100_000)}}}, want: refused(`attribute "user.x"`)},
		{name: "a file capability that is none", entries: []ent{{name: "f", xattrs: map[string]string{"security.capability": "nonsense"}}}, want: refused("security.capability")},
		{name: "an ACL that is none", entries: []ent{{name: "f", xattrs: map[string]string{"system.posix_acl_access": "nonsense"}}}, want: tree("f=")},
		{name: "10,000 attributes", entries: []ent{{name: "f", xattrs: many(10_000)}}, want: refused("attribute", "no room for it among the attributes of one file")},
		{name: "owners of 32 bits", entries: []ent{{name: "f", pax: map[string]string{"uid": "4294967294", "gid": "4294967294"}}}, want: tree("f= 4294967294:4294967294")},
		{name: "nobody's owner", entries: []ent{{name: "f", pax: map[string]string{"uid": "4294967295"}}}, want: refused("owner 4294967295:0")},
		{name: "an owner beyond 32 bits", entries: []ent{{name: "f", pax: map[string]string{"gid": "4294967296"}}}, want: refused("owner 0:4294967296")},
		{name: "an owner beyond 64 bits", entries: []ent{{name: "f", pax: map[string]string{"uid": "99999999999999999999"}}}, want: refused("invalid tar header")},
		{name: "a negative owner", entries: []ent{{name: "f", pax: map[string]string{"uid": "-1"}}}, want: refused("owner -1:0")},
		{name: "times far away", entries: []ent{{name: "f", pax: map[string]string{"mtime": "9223372036854775807"}}, {name: "g", pax: map[string]string{"mtime": "-9223372036854775808.5", "atime": "99999999999.999999999"}}}, want: tree("f=", "g=")},
		{name: "a time that is none", entries: []ent{{name: "f", pax: map[string]string{"mtime": "1e9"}}}, want: refused("invalid tar header")},
		{name: "a time before 1970", entries: []ent{{name: "f", pax: map[string]string{"mtime": "-1.5"}}}, want: tree("f=")},
		{name: "the same file twice", entries: []ent{reg("a", "first"), {name: "a", data: "second", mode: 0o600}}, want: tree("a=second 0600")},
		{name: "a file where a directory is", entries: []ent{dirEnt("a"), reg("a/b/c", "x"), reg("a", "x")}, want: tree("a=x")},
		{name: "a directory where a file is", entries: []ent{reg("a", "x"), dirEnt("a"), reg("a/b", "y")}, want: tree("a/", "a/b=y")},
		{name: "a directory twice", entries: []ent{{name: "a", kind: tar.TypeDir, mode: 0o700}, reg("a/b", "x"), {name: "a", kind: tar.TypeDir, mode: 0o711, uid: 5}}, want: tree("a/ 0711 5:0", "a/b=x")},
		{name: "a device where a directory is", entries: []ent{reg("a/b", "x"), {name: "a", kind: tar.TypeFifo}}, want: tree("a|")},
		{name: "a file over a hard link", entries: []ent{reg("a", "x"), hard("b", "a"), reg("b", "y")}, want: tree("a=x", "b=y")},
		{name: "a file where the lower layer has a directory", entries: []ent{reg("data", "x")}, want: tree("data=x")},
	}
}

func many(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out["user."+string(rune('a'+i%26))+strings.Repeat("y", i%7)+strings.Repeat("z", i/1000)+string(rune('A'+i/26%26))+string(rune('A'+i/676))] = "x"
	}
	return out
}

func nameCases() []layerCase {
	long := strings.Repeat("n", 255)
	deep := strings.TrimSuffix(strings.Repeat("d/", 1500), "/")
	return []layerCase{
		{name: "no name", entries: []ent{reg("", "x")}, want: tree()},
		{name: "255 bytes", entries: []ent{reg(long, "x")}, want: tree("nnnnnnnnnn(255)=x")},
		{name: "256 bytes", entries: []ent{reg(long+"n", "x")}, want: refused("file name too long")},
		{name: "a path of 4096 bytes", entries: []ent{reg(strings.Repeat("n/", 2048), "x")}, want: refused("its path has 4096 bytes")},
		{name: "a path of 300,000 bytes", entries: []ent{reg(strings.Repeat("n/", 150_000), "x")}, want: refused("its path has 300000 bytes", "... (300000 bytes)")},
		{name: "a newline", entries: []ent{reg("a\nb\tc", "x")}, want: tree("a\nb\tc=x")},
		{name: "no UTF-8", entries: []ent{reg("a\xff\xfe\x80", "x")}, want: tree("a\xff\xfe\x80=x")},
		{name: "a NUL in a PAX name", entries: []ent{{name: "f", data: "x", pax: map[string]string{"path": "a\x00b"}}}, want: refused("invalid tar header")},
		{name: "a NUL in a GNU name", entries: []ent{{name: "f", data: "x", longName: "a\x00b"}}, want: tree("a=x")},
		{name: "a NUL in an attribute", entries: []ent{{name: "f", data: "x", xattrs: map[string]string{"user.a\x00b": "x"}}}, want: refused("invalid tar header")},
		{name: "terminal sequences", entries: []ent{{name: "\x1b]0;owned\x07\x1b[2J", kind: 's'}}, want: refused(`\x1b]0;owned\a`)},
		{name: "deep", entries: []ent{reg(deep+"/x", "x")}, want: expectation{}},
		{name: "deeper than paths can be", entries: deeper(10), want: refused("file name too long")},
		{name: "a backslash", entries: []ent{reg(`..\..\a`, "x")}, want: tree(`..\..\a=x`)},
	}
}

// deeper makes directories n times as deep as a path can name, each time through a link to the deepest one so far.
func deeper(n int) []ent {
	var out []ent
	deep := strings.TrimSuffix(strings.Repeat("d/", 1000), "/")
	at := ""
	for i := range n {
		name := string(rune('a' + i))
		target := deep
		if at != "" {
			target = at + "/" + deep
		}
		out = append(out, sym(name, target), reg(name+"/x", "x"))
		at = name
	}
	return out
}

// lyingCases are headers that say something else than what is there.
func lyingCases() []layerCase {
	size := func(field string) func([]byte) { return func(b []byte) { copy(b[124:136], field) } }
	negative := "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
	most := "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff"
	over := "\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"
	sparse := func(records map[string]string) ent { return ent{name: "s", data: "12345", pax: records} }
	limit := expectation{says: []string{"bytes unpacked", "several layers"}, class: isResourceExhausted}
	good := rawTar(reg("a", "x"), reg("b", "y"))
	badSum := bytes.Clone(good)
	badSum[0] = 'z'
	return []layerCase{
		{name: "a negative size", entries: []ent{{name: "f", change: size(negative)}}, want: refused("invalid tar header")},
		{name: "a size of 2^63-1", entries: []ent{{name: "f", change: size(most)}}, want: limit},
		{name: "a size of 2^64", entries: []ent{{name: "f", change: size(over)}}, want: refused("invalid tar header")},
		{name: "a size that is no number", entries: []ent{{name: "f", change: size("12x45678901\x00")}}, want: refused("invalid tar header")},
		{name: "a size of 8 GiB that is not there", entries: []ent{{name: "f", change: size("77777777777\x00")}}, want: refused("cut short")},
		{name: "a larger size in PAX", entries: []ent{{name: "f", data: "x", pax: map[string]string{"size": "100000"}}}, want: refused("cut short")},
		{name: "a smaller size in PAX", entries: []ent{{name: "f", data: strings.Repeat("x", 600), pax: map[string]string{"size": "5"}}, reg("g", "y")}, want: refused("invalid tar header")},
		{name: "a negative size in PAX", entries: []ent{{name: "f", data: "x", pax: map[string]string{"size": "-1"}}}, want: refused("invalid tar header")},
		{name: "a huge size in PAX", entries: []ent{{name: "f", data: "x", pax: map[string]string{"size": "9223372036854775807"}}}, want: limit},
		{name: "a size beyond 64 bits in PAX", entries: []ent{{name: "f", data: "x", pax: map[string]string{"size": "18446744073709551616"}}}, want: refused("invalid tar header")},
		{name: "a directory with a payload", entries: []ent{{name: "d", kind: tar.TypeDir, change: size("00000002000\x00")}, reg("f", "x")}, want: tree("d/", "f=x")},
		{name: "a PAX record that is longer than the header", raw: append(append(block(ent{name: "p", kind: tar.TypeXHeader, data: "99999 path=x\n"}), block(reg("f", "x"))...), make([]byte, 1024)...), want: refused("invalid tar header")},
		{name: "a PAX record without a length", raw: append(append(block(ent{name: "p", kind: tar.TypeXHeader, data: "path=x\n"}), block(reg("f", "x"))...), make([]byte, 1024)...), want: refused("invalid tar header")},
		{name: "a PAX header of 2 MB", raw: append(append(block(ent{name: "p", kind: tar.TypeXHeader, data: paxRecord("comment", strings.Repeat("x", 2<<20))}), block(reg("f", "x"))...), make([]byte, 1024)...), want: refused("field too long")},
		{name: "a PAX header for nothing", raw: append(block(ent{name: "p", kind: tar.TypeXHeader, data: paxRecord("path", "x")}), make([]byte, 1024)...), want: tree()},
		{name: "PAX headers for all", raw: append(append(block(ent{name: "p", kind: tar.TypeXGlobalHeader, data: paxRecord("path", "../../etc/passwd")}), block(reg("f", "x"))...), make([]byte, 1024)...), want: tree("f=x")},
		{name: "a long name of 2 MB", entries: []ent{{name: "f", longName: strings.Repeat("n", 2<<20)}}, want: refused("field too long")},
		{name: "two names", entries: []ent{{name: "f", data: "x", longName: "g", pax: map[string]string{"path": "h"}}}, want: tree("g=x")},
		{name: "a sparse file that ends in the middle", entries: []ent{sparse(map[string]string{"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,50", "GNU.sparse.size": "100", "GNU.sparse.name": "s", "GNU.sparse.numblocks": "1"})}, want: refused(`"s"`)},
		{name: "a sparse file of 8 EiB", entries: []ent{sparse(map[string]string{"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,5", "GNU.sparse.size": "9223372036854775807", "GNU.sparse.name": "s", "GNU.sparse.numblocks": "1"})}, want: limit},
		{name: "a sparse file whose ranges overlap", entries: []ent{sparse(map[string]string{"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,3,1,2", "GNU.sparse.size": "100", "GNU.sparse.name": "s", "GNU.sparse.numblocks": "2"})}, want: refused("invalid tar header")},
		{name: "a sparse file of a billion ranges", entries: []ent{sparse(map[string]string{"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,5", "GNU.sparse.size": "100", "GNU.sparse.name": "s", "GNU.sparse.numblocks": "1000000000"})}, want: refused("invalid tar header")},
		{name: "a sparse file with bytes left", entries: []ent{sparse(map[string]string{"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,2", "GNU.sparse.size": "100", "GNU.sparse.name": "s", "GNU.sparse.numblocks": "1"})}, want: refused("unreferenced data")},
		{name: "a sparse file with another name", entries: []ent{sparse(map[string]string{"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "1,5", "GNU.sparse.size": "8", "GNU.sparse.name": "../../t", "GNU.sparse.numblocks": "1"})}, want: tree("t=\x0012345\x00\x00")},
		{name: "a wrong checksum", raw: badSum, want: refused("invalid tar header")},
		{name: "cut within a header", raw: good[:1200], want: refused("cut short")},
		{name: "cut within the padding", raw: good[:700], want: tree("a=x")},
		{name: "cut within a file", raw: rawTar(reg("a", strings.Repeat("x", 2000)))[:1000], want: refused("cut short")},
		{name: "cut before the end", raw: good[:len(good)-1024], want: tree("a=x", "b=y")},
		{name: "a second tar behind the first", raw: append(bytes.Clone(good), rawTar(reg("c", "z"))...), want: tree("a=x", "b=y")},
		{name: "one block of zeros within", raw: append(append(entriesOf(reg("a", "x")), make([]byte, 512)...), rawTar(reg("b", "y"))...), want: refused("invalid tar header")},
		{name: "nothing at all", raw: []byte{}, want: tree()},
		{name: "zeros only", raw: make([]byte, 10240), want: tree()},
		{name: "no tar", raw: bytes.Repeat([]byte("no tar "), 400), want: refused("invalid tar header")},
	}
}
