package preauth

// Types of TLS records (RFC 8446, section 5.1, and appendix B.1).
const (
	changeCipherSpec = 20
	applicationData  = 23
)

// recordHeader is the length of a record's header: its type, a version and two bytes of length.
const recordHeader = 5

// records follows what a client sends, until its last flight of the handshake begins: with a record of the type
// change_cipher_spec (TLS 1.2, and the compatibility mode of TLS 1.3) or application_data (TLS 1.3, whose last flight is
// encrypted). What is in the records is for the server to judge.
type records struct {
	header [recordHeader]byte
	// have is how much of the header is there, skip how much of the record's content is still to come.
	have, skip int
	last       bool
}

// read follows the next bytes and says whether the last flight has begun.
func (r *records) read(p []byte) bool {
	for len(p) > 0 && !r.last {
		if r.skip > 0 {
			n := min(r.skip, len(p))
			r.skip, p = r.skip-n, p[n:]
			continue
		}
		r.header[r.have] = p[0]
		r.have, p = r.have+1, p[1:]
		r.last = r.header[0] == changeCipherSpec || r.header[0] == applicationData
		if r.have == recordHeader {
			r.have, r.skip = 0, int(r.header[3])<<8|int(r.header[4])
		}
	}
	return r.last
}
