package cgroup

import "os"

// MachinePressure is how the tasks of the whole machine have waited; nil where the kernel does not tell it.
func MachinePressure() (cpu, memory, io *Pressure) {
	of := func(resource string) *Pressure {
		raw, err := os.ReadFile("/proc/pressure/" + resource)
		if err != nil {
			return nil // a kernel without PSI, or one that was told psi=0
		}
		return parsePressure(raw)
	}
	return of("cpu"), of("memory"), of("io")
}
