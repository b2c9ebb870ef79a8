// Package escape attacks a real node from inside its containers: hostile images, hostile containers, and a local user. It holds each
// published class of escapes (docs/THREAT-MODEL.md lists them) by an attempt, through CRI, on `monopod runtime`, with the native engine and
// with runc as an OCI runtime. A test's comment says what its attack does and how a success would show; what it asserts is that nothing of
// that is there, and that the node is as usable as before.
//
// What runs inside is this package's own test binary, at /attack in every image: TestMain turns it into an attacker when it is
// called by that name. So no compiler is needed where the tests run.
//
// With -short, and in an emulated machine, races get fewer rounds, floods fewer calls, and strings fewer fields with runc. With -short those are left out that
// need a node of their own for long, and of which the tests of packages hold the parts (notShort).
package escape
