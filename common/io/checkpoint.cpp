#include "common/io/checkpoint.h"
