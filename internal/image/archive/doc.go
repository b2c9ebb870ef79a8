// Package archive reads image archives (OCI image layouts as tars, and what docker save writes) into a store's blobs, and writes such archives of images that a store
// has unpacked. It knows no names of a store, and holds nothing there: who calls it has a transfer.
//
// An archive is hostile input. It guarantees:
//   - names in it are names: they are never used as paths;
//   - what a document names is in the archive, of the digest and the size that it says, before anything of it is unpacked;
//   - a Writer writes the configurations and the layers' tars that the images were pulled or loaded with, byte for byte.
package archive
