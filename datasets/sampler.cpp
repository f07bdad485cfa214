#include "datasets/sampler.h"
